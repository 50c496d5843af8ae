"""Measured peaks: plausible, strict JSON, and clear about what is missing."""

import json
import os
import subprocess

import pytest

from pytest_llmperf import peaks
from pytest_llmperf.__main__ import main
from pytest_llmperf.errors import HardwareError


@pytest.fixture
def small(monkeypatch):
    pytest.importorskip("numpy", reason="measuring needs numpy, which comes with vLLM")
    monkeypatch.setattr(peaks, "_CPU_BYTES_A_CORE", 1 << 20)


def test_the_command_tells_a_bandwidth_with_its_unit_and_method(small, capsys):
    assert main(["peaks", "--cpu"]) == 0
    printed = capsys.readouterr().out
    assert "B/s" in printed
    assert "best of 10" in printed


def test_the_json_is_read_back_as_it_was_written(small, capsys):
    assert main(["peaks", "--cpu", "--json"]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    read = peaks.DevicePeaks(**record)
    assert read.copy_bandwidth > 1e6
    assert read.host_to_device is None
    assert peaks.hardware_of(read).peak_bandwidth == read.copy_bandwidth


def test_twice_the_work_counts_twice_the_bytes(small, monkeypatch):
    # The figure is bytes over time: with the time held, it follows the bytes.
    monkeypatch.setattr(peaks, "_best", lambda work: 1.0)
    once = peaks.cpu_peaks().copy_bandwidth
    monkeypatch.setattr(peaks, "_CPU_BYTES_A_CORE", 2 << 20)
    assert peaks.cpu_peaks().copy_bandwidth == 2 * once
    cores = len(os.sched_getaffinity(0))
    assert once == 2 * cores * (1 << 20), "bytes read and written, by every core"


def test_without_a_gpu_its_peaks_are_refused_in_words(monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HardwareError, match="sees no GPU"):
        peaks.gpu_peaks()


def test_a_failure_in_the_other_process_brings_its_last_words(monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "Traceback...\nerror: PyTorch sees no GPU.\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    with pytest.raises(HardwareError, match=r"error: PyTorch sees no GPU\."):
        peaks.in_own_process(on_gpu=True)


def test_the_own_process_really_measures():
    pytest.importorskip("numpy", reason="measuring needs numpy, which comes with vLLM")
    (one,) = peaks.in_own_process(on_gpu=False)
    assert one.copy_bandwidth > 1e6
