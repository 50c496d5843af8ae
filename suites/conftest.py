"""What holds for the whole suite."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Declare the suite's own marker."""
    config.addinivalue_line("markers", "sweep: a longer series; runs only with -m sweep")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the sweeps out unless they were asked for by a marker expression or by name."""
    if config.option.markexpr or any("::" in arg for arg in config.invocation_params.args if isinstance(arg, str)):
        return
    kept = [item for item in items if item.get_closest_marker("sweep") is None]
    dropped = [item for item in items if item.get_closest_marker("sweep") is not None]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept
