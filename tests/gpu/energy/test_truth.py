"""What the sampling process and the arithmetic make of boards whose power is known."""

import time

from pytest_llmperf.gpu.energy import Joules
from pytest_llmperf.gpu.energy.exact_window import across
from pytest_llmperf.gpu.nvml import Nvml
from pytest_llmperf.gpu.sampling.watch import BoardWatch
from tests.fake_nvml.curves import Curve, bursts, ramp, steps
from tests.fake_nvml.fixture import SCENARIOS

#: Seconds of a window, how far off its energy may be, and how many of them are cut from what was read.
WINDOWS = ((0.5, 0.05, 12), (2.0, 0.01, 6), (10.0, 0.003, 1))
CURVES: dict[str, Curve] = {
    "v100": steps(0.61, [60, 250, 110, 280]),
    "a100": ramp(2.3, 90, 380),
    "h100": bursts(0.83, 380, 640, 0.07),
}


def together(names) -> str:
    """One machine with a board of each generation."""
    texts = [
        (SCENARIOS / f"{name}.ini").read_text().replace("[board 0]", f"[board {n}]") for n, name in enumerate(names)
    ]
    return "\n".join(texts)


def test_every_generation_is_within_its_limits_or_refused(fake_nvml):
    fake_nvml.scenario(together(CURVES), "".join(c.scenario(n) for n, c in enumerate(CURVES.values())))
    fake_nvml.begin(100)
    with Nvml() as nvml:
        watches = [BoardWatch([board.uuid]) for board in nvml.boards()]
    try:
        for watch in watches:
            watch.begin_blocking()
        begin = time.monotonic_ns()
        time.sleep(10.1)
        samples = [watch.end_blocking()[0] for watch in watches]
    finally:
        for watch in watches:
            watch.close()
    zero = time.monotonic_ns() - round(fake_nvml.elapsed() * 1e9)
    known, off = set(), []
    for (name, curve), one in zip(CURVES.items(), samples, strict=True):
        for length, limit, count in WINDOWS:
            for n in range(count):
                start = begin + round((n * (10.0 - length) / max(1, count - 1) + 0.01) * 1e9)
                end = start + round(length * 1e9)
                found = across(one.counter(), one.power(), start, end)
                if isinstance(found, Joules):
                    truth = curve.joules((start - zero) / 1e9, (end - zero) / 1e9)
                    assert abs(found.value - truth) < 4 * found.error, (name, length, found, truth)
                    off.append(abs(found.value / truth - 1) / limit)
                    known.add((name, length))
                else:
                    assert "too short" in found.reason
    # A process that is woken late, on a machine with more to do, knows less; it says so, in four of its uncertainties.
    assert sorted(off)[int(0.93 * len(off))] <= 1
    assert max(off) < 1.5
    # A refusal is an answer, but no way out.
    assert known >= {(name, length) for name in CURVES for length in (0.5, 2.0)}
    assert len(off) > 0.6 * 3 * sum(count for _, _, count in WINDOWS)
