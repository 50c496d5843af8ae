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
    """Leave the sweeps out unless they were asked for by a marker expression or by name."""
    if config.option.markexpr or any("::" in arg for arg in config.invocation_params.args if isinstance(arg, str)):
        return
    kept = [item for item in items if item.get_closest_marker("sweep") is None]
    dropped = [item for item in items if item.get_closest_marker("sweep") is not None]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.fixture
def boards(gpus):
    """The boards in use; skips the test where there are none whose power could be read."""
    if not gpus:
        pytest.skip("there is no GPU whose power could be read")
    return gpus
