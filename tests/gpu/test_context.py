"""A process that holds CUDA contexts: on a driver library that is not there, and on none."""

# ruff: noqa: N802  # the functions are named as the driver names them

import subprocess
import sys

import psutil
import pytest

from pytest_llmperf.gpu import Unreadable
from pytest_llmperf.gpu.context import cuda_contexts, retain_contexts
from tests import fake_cuda

HOLD = """
from pytest_llmperf.gpu.context import cuda_contexts
with cuda_contexts() as pid:
    print(pid, flush=True)
    input()
"""


class Driver:
    """Counts its GPUs, and refuses what it is told to."""

    def __init__(self, gpus=2, **refuses):
        self.retained, self._gpus, self._refuses = [], gpus, refuses

    def cuInit(self, flags):
        assert flags == 0
        return self._refuses.get("cuInit", 0)

    def cuDeviceGetCount(self, count):
        count._obj.value = self._gpus
        return self._refuses.get("cuDeviceGetCount", 0)

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = 10 + ordinal
        return 0

    def cuDevicePrimaryCtxRetain(self, context, device):
        self.retained.append(device.value)
        return self._refuses.get(f"retain {device.value}", 0)

    def cuGetErrorName(self, status, name):
        name._obj.value = {100: b"CUDA_ERROR_NO_DEVICE", 2: b"CUDA_ERROR_OUT_OF_MEMORY"}.get(status)
        return int(name._obj.value is None)


def retained(driver):
    return retain_contexts(lambda name: driver)


def test_one_on_every_gpu():
    driver = Driver()
    assert retained(driver) is None
    assert driver.retained == [10, 11]


@pytest.mark.parametrize(
    ("driver", "why"),
    [
        (Driver(cuInit=100), "cuInit: CUDA_ERROR_NO_DEVICE"),
        (Driver(cuInit=12345), "cuInit: error 12345"),
        (Driver(cuDeviceGetCount=100), "cuDeviceGetCount: CUDA_ERROR_NO_DEVICE"),
        (Driver(gpus=0), "CUDA shows no GPU"),
        (Driver(**{"retain 11": 2}), "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY (GPU 1)"),
    ],
)
def test_what_the_driver_refuses_is_told_in_its_words(driver, why):
    assert retained(driver) == why


def test_no_library_and_one_of_something_else():
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    assert retain_contexts(missing) == "libcuda.so.1: cannot open shared object file"
    assert "is no CUDA driver" in retained(object())


@pytest.fixture
def cuda(tmp_path, fake_nvml_library, monkeypatch):
    for name, value in fake_cuda.environment(fake_cuda.build(tmp_path)).items():
        monkeypatch.setenv(name, value)


def test_a_process_of_ours_holds_them_for_as_long_as_the_block(cuda):
    with cuda_contexts() as pid:
        assert pid in {child.pid for child in psutil.Process().children()}
    assert not psutil.pid_exists(pid)


def test_a_refusal_is_a_reason(cuda, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_INIT", "100")
    with cuda_contexts() as refused:
        assert refused == Unreadable("no CUDA context could be made: cuInit: CUDA_ERROR_NO_DEVICE")


def test_it_ends_with_who_asked_for_it(cuda):
    asker = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    holder = psutil.Process(int(asker.stdout.readline()))
    asker.kill()
    asker.communicate()
    holder.wait(30)
