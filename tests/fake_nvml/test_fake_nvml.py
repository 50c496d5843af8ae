from __future__ import annotations

import json
import textwrap

import pytest

from tests.fake_nvml.fixture import SCENARIOS


def ask(fake, code, **environment):
    """What a process of its own prints as JSON when it runs the code with an initialised ``n`` and the handle ``h``."""
    start = "import json, os, sys, time\nimport pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex(0)\n"
    done = fake.python(start + textwrap.dedent(code), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.ini")), ids=lambda path: path.stem)
def test_every_shipped_scenario_answers(fake_nvml, path):
    fake_nvml.scenario(path.stem)
    got = ask(
        fake_nvml,
        """
        memory = n.nvmlDeviceGetMemoryInfo(h)
        clocks = n.nvmlDeviceGetSupportedGraphicsClocks(h, n.nvmlDeviceGetSupportedMemoryClocks(h)[0])
        print(json.dumps([n.nvmlDeviceGetName(h), memory.total, clocks, n.nvmlDeviceGetPowerUsage(h)]))
        """,
    )
    name, total, clocks, milliwatts = got
    assert name
    assert total > 2**34
    assert clocks == sorted(clocks, reverse=True)
    assert milliwatts > 20_000


def test_a_lock_outlives_its_process_and_others_see_it(fake_nvml):
    ask(fake_nvml, "n.nvmlDeviceSetGpuLockedClocks(h, 1500, 1500); print('null')")
    assert fake_nvml.locked(0) == (1500, 1500)
    read = "print(json.dumps([n.nvmlDeviceGetClockInfo(h, 1), n.nvmlDeviceGetCurrentClocksEventReasons(h)]))"
    assert ask(fake_nvml, read) == [1500, 0x3]
    ask(fake_nvml, "n.nvmlDeviceResetGpuLockedClocks(h); print('null')")
    assert fake_nvml.locked(0) is None
    assert ask(fake_nvml, read) == [345, 0x1]
