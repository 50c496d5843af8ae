"""What all tests share."""

import pytest

# pytester forgets modules that an inner run has loaded; these stay, so that every inner run has the same classes.
import pytest_llmperf.engines.simulated
import pytest_llmperf.machine
import pytest_llmperf.plugin.checking
import pytest_llmperf.report.write  # noqa: F401

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    """Tests behave the same on a developer's machine and in CI, except where they set CI themselves."""
    monkeypatch.delenv("CI", raising=False)
