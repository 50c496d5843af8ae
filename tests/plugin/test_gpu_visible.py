"""Which boards a session reads and locks, by the driver's log: those that CUDA_VISIBLE_DEVICES shows and no other."""

import asyncio

import pytest

from pytest_llmperf.gpu.nvml import Nvml, visible_boards
from pytest_llmperf.gpu.sampling.watch import BoardWatch

from .servers import FakeServer

UUIDS = [f"GPU-{digit * 8}-0000-4000-8000-000000000000" for digit in "abcd"]
#: In NVML's order; by the bus, which is CUDA's order for boards of one product, they are 2, 0, 3, 1.
BUS = ("20", "40", "10", "30")
FOUR = "".join(
    f"[board {index}]\n{'like = 0' if index else ''}\nuuid = {uuid}\npci = 00000000:{bus}:00.0\n"
    for index, (uuid, bus) in enumerate(zip(UUIDS, BUS, strict=True))
)
MEASURE = """
from pytest_llmperf import Workload

def test_one(llmperf, gpus, gpu_clock):
    print("in use:", [board.index for board in gpus])
    llmperf.measure(Workload(4, 200))
"""
#: What asks which boards there are, of all of them.
ASKING = (
    "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetPciInfo", "nvmlDeviceGetMigMode", "nvmlDeviceGetCudaComputeCapability",
    "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId",
)  # fmt: skip


@pytest.fixture
def four(fake_nvml, monkeypatch, tmp_path):
    """Four boards that are busy, in an order that is not CUDA's."""
    fake_nvml.scenario("h200", f"{FOUR}[boards]\nload = 0.5\n")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake_nvml


def touched(fake):
    """The boards of which more was asked than what they are."""
    return {call.board for call in fake.calls() if call.board is not None and not call.function.startswith(ASKING)}


def locked(fake):
    return [call.board for call in fake.calls("nvmlDeviceSetGpuLockedClocks")]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [2, 0, 3, 1]),
        ("", []),
        ("-1", []),
        ("1,0", [0, 2]),
        (UUIDS[3], [3]),
        ("GPU-b", [1]),
        (" 0 , 1 ", [2, 0]),
        ("0,junk,1", [2]),
        ("2", [3]),
    ],
)
def test_the_boards_in_use_are_cudas(four, monkeypatch, visible, indices):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert [board.index for board in visible_boards()] == indices


def test_a_mig_instance_stands_for_its_board(four, monkeypatch):
    four.scenario(
        "h200", f"{FOUR}[board 1]\nmig = yes\nmig_device = MIG-aaaa 1 0 20000\nmig_device = MIG-bbbb 2 0 20000\n"
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-b")
    (board,) = visible_boards()
    assert (board.index, board.mig.uuid) == (1, "MIG-bbbb")


@pytest.mark.parametrize(
    ("visible", "index"),
    [("2", 3), (UUIDS[2], 2), ("GPU-a", 0), ("3,junk,0", 1), ("GPU-cccccccc,0", 2)],
)
def test_only_the_visible_board_is_read_and_locked(four, pytester, monkeypatch, visible, index):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    pytester.makepyfile(test_suite=MEASURE)
    with FakeServer() as server:
        engine = f"--llmperf-engine=http://{server.address},calibrate=false"
        result = pytester.runpytest_inprocess("-s", engine, "--gpu-clock=900", "--llmperf-report=report")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"gpu clock: 900 MHz locked on GPU {index} (NVIDIA H200)", f"*in use: [[]{index}]*"])
    assert touched(four) == {index}
    assert locked(four) == [index]
    assert [call.board for call in four.calls("nvmlDeviceResetGpuLockedClocks")] == [index]


def test_where_the_orders_agree_2_of_four_is_board_2(four, pytester, monkeypatch):
    four.scenario(
        "h200", "".join(f"[board {i}]\nlike = 0\nuuid = {UUIDS[i]}\npci = 00000000:{i + 1}0:00.0\n" for i in (1, 2, 3))
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    pytester.makepyfile(test_suite="def test_one(gpus, gpu_clock): assert [board.index for board in gpus] == [2]")
    pytester.runpytest_inprocess("--gpu-clock=900").assert_outcomes(passed=1)
    assert locked(four) == [2]
    assert touched(four) == {2}


@pytest.mark.parametrize("visible", ["", "-1", "junk"])
def test_without_a_visible_board_nothing_is_locked_or_read(four, pytester, monkeypatch, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    pytester.makepyfile(test_suite="def test_one(gpu_clock): pass")
    assert pytester.runpytest_inprocess("--gpu-clock=900").ret == pytest.ExitCode.USAGE_ERROR
    assert touched(four) == set()


def test_the_sampler_reads_those_it_was_given(four):
    async def sample():
        watch = BoardWatch([UUIDS[2]])
        try:
            await watch.begin()
            return await watch.end()
        finally:
            watch.close()

    with Nvml():
        (samples,) = asyncio.run(sample())
    assert samples.uuid == UUIDS[2]
    assert touched(four) == {2}
