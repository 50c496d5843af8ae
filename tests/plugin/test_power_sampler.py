"""The fixture ``power_sampler``, in tests that need no engine."""

import os

import pytest

MEASURE = """
import time

def test_measured(power_sampler):
    for _ in range(2):
        with power_sampler() as p:
            time.sleep(0.3)
        print()
        print("power", p.power_w, p.source, p.reason)
"""


def test_it_measures_without_an_engine_and_leaves_no_process(pytester, fake_nvml):
    fake_nvml.scenario("v100", "[boards]\npower = 200\n")
    fake_nvml.begin(100)
    pytester.makepyfile(MEASURE)
    result = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    lines = [line.split() for line in result.outlines if line.startswith("power")]
    assert [float(watts) for _, watts, *_ in lines] == [pytest.approx(200, rel=0.05)] * 2
    pids = {call.pid for call in fake_nvml.calls("nvmlDeviceGetPowerUsage")}
    assert len(pids) == 1
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)  # noqa: PTH110
    assert "llmperf" not in "".join(line for line in result.outlines if "engine" in line)


def test_the_sessions_clock_is_held_meanwhile(pytester, fake_nvml, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    fake_nvml.scenario("h200")
    pytester.makepyfile(MEASURE.replace("range(2)", "range(1)"))
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--gpu-clock=900")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["gpu clock: 900 MHz locked on GPU 0*"])
    assert [call.argument for call in fake_nvml.calls("nvmlDeviceSetGpuLockedClocks")] == ["900-900"]
    assert fake_nvml.locked(0) is None


def test_only_the_boards_in_use_are_read(pytester, fake_nvml, monkeypatch):
    fake_nvml.scenario("two-h200", "[board 0]\npower = 200\n[board 1]\npower = 300\n")
    fake_nvml.begin(100)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    pytester.makepyfile(MEASURE.replace("range(2)", "range(1)").replace("0.3", "0.5"))
    result = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider")
    (line,) = [line.split() for line in result.outlines if line.startswith("power")]
    assert float(line[1]) == pytest.approx(300, rel=0.05)


def test_without_a_driver_there_is_a_reason_and_no_error(pytester, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    pytester.makepyfile(MEASURE)
    result = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["power None None there is no GPU*"])
