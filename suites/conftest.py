"""What holds for all suites: sweeps run when they are asked for, and over clocks that the boards have."""

import pytest

from pytest_llmperf.plugin import clock_grid


def pytest_configure(config: pytest.Config) -> None:
    """Declare the suites' own marker."""
    config.addinivalue_line("markers", "sweep: a longer series; runs only with -m sweep")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let a test that takes ``gpu_clock`` run at every clock of the grid for the boards in use."""
    if "gpu_clock" in metafunc.fixturenames:
        metafunc.parametrize("gpu_clock", clock_grid(metafunc.config), indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the sweeps out unless they were asked for by a marker expression, or each by its name."""
    if config.option.markexpr:
        return
    chosen = [name for name in map(str, config.args) if "::" in name]
    dropped = [item for item in items if item.get_closest_marker("sweep") is not None and not _named(item, chosen)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        left_out = set(dropped)
        items[:] = [item for item in items if item not in left_out]


def _named(item: pytest.Item, chosen: list[str]) -> bool:
    """Whether a test is one of those that the command line names, as ``FILE::NAME`` with parameters or without."""
    own = item.nodeid.partition("::")[2]
    for one in chosen:
        file, _, name = one.partition("::")
        alike = own == name or own.startswith((f"{name}[", f"{name}::"))
        if alike and (item.config.invocation_params.dir / file).resolve() == item.path.resolve():
            return True
    return False


@pytest.fixture
def boards(gpus):
    """The boards in use; skips the test where there are none whose power could be read."""
    if not gpus:
        pytest.skip("there is no GPU whose power could be read")
    return gpus
