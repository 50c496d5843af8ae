"""A plugin for inner sessions, ``-p tests.plugin.quick``: they look at boards as briefly as fakes allow."""

import pytest

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.energy import sensor
from pytest_llmperf.plugin import calibration, instruments

#: How long a session's launches last for their boards' sensors.
FILL_S = instruments.Instruments._fill_s


def _survey(devices, survey=sensor.survey):
    """In half a second a busy machine may see too few steps to tell their period; then as long as always."""
    found = survey(devices, seconds=0.5)
    return survey(devices) if any(isinstance(one.counter, Unreadable) for one in found.values()) else found


SHORTER = (
    (sensor, "survey", _survey),
    (calibration, "SETTLE_S", 0),
    (calibration, "idle_window_s", lambda sensors: 0.5),
    (calibration, "_TRIES", 1),
    (instruments.Instruments, "_fill_s", lambda *_: 0.5),
)

#: What a session in a process of its own needs to be as quick as one in this.
QUICK = {"runpytest_inprocess": (), "runpytest_subprocess": ("-p", "tests.plugin.quick")}


def pytest_configure(config):
    # The session may be one of several in this process, and the next is to find everything as it was.
    patch = pytest.MonkeyPatch()
    config.add_cleanup(patch.undo)
    for module, name, value in SHORTER:
        patch.setattr(module, name, value)
