"""What all tests share."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import scipy.special  # noqa: F401  # nor can numpy, which comes with it, be loaded a second time
import vl_convert  # noqa: F401  # nor can this, and charts would go missing after the first inner run

# pytester forgets modules that an inner run has loaded; these stay, so that every inner run has the same classes.
import pytest_llmperf.engines.simulated
import pytest_llmperf.findings
import pytest_llmperf.machine
import pytest_llmperf.plugin.checking
import pytest_llmperf.report.exporters.pictures
import pytest_llmperf.report.write

# pytest reads this file also where it only prints its options, in an environment without what the tests need.
if find_spec("hypothesis") is not None:
    from hypothesis import settings

    # Machines that run tests are shared: how long an example takes says nothing about the code.
    settings.register_profile("llmperf", deadline=None, database=None)
    settings.load_profile("llmperf")

pytest_plugins = ["pytester", "tests.fake_nvml.fixture"]

#: Read before pytester gives each test a home of its own.
CACHES = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")


@pytest.fixture(autouse=True)
def no_ci(monkeypatch):
    """Tests behave the same on a developer's machine and in CI, except where they set CI themselves."""
    monkeypatch.delenv("CI", raising=False)
    # pytest-benchmark takes the inner runs of an xdist worker's tests for workers themselves.
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _caches(monkeypatch):
    """What vLLM knows of a model's class, and the bundled script of the charts, are made once and not once a home."""
    monkeypatch.setenv("XDG_CACHE_HOME", CACHES)


@pytest.fixture(autouse=True)
def _no_pictures(request, monkeypatch):
    """Sessions of other tests than those of reports draw no PNG: that takes longer than what they measure."""
    if "tests/report/" not in request.node.nodeid and not request.node.nodeid.startswith("report/"):
        monkeypatch.setattr(pytest_llmperf.report.exporters.pictures, "png", lambda chart: b"PNG")


@pytest.fixture(autouse=True)
def _small_heap():
    """A launch collects garbage first: of what its session made, not of all that was loaded for tests."""
    gc.freeze()
    yield
    gc.unfreeze()
