"""Samples of boards, made by hand."""

from array import array
from math import floor

from pytest_llmperf.gpu.sampling.sampler import BoardSamples

MS = 1_000_000
S = 1000 * MS


def board_samples(
    uuid="GPU-a", *, watts=200.0, seconds=3.0, tick_ms=20, utilization=0.9, memory=2**30, clock=1500.0, counter=True,
    power=True, **changes,
):  # fmt: skip
    """A board under a constant load: power every 10 ms, its counter every 5 ms, the slow quantities every 200 ms."""
    fast = range(0, round(seconds * 1e3) + 1, 10)
    dense = range(0, round(seconds * 1e3) + 1, 5)
    slow = range(0, round(seconds * 1e3) + 1, 200)
    samples = BoardSamples(
        uuid,
        at_ns=array("q", (t * MS for t in fast)),
        power_w=array("d", ((watts if power else float("nan")) for _ in fast)),
        sm_clock_mhz=array("d", (clock for _ in fast)),
        memory_clock_mhz=array("d", (float("nan") for _ in fast)),
        reasons=array("q", (0 for _ in fast)),
        slow_at_ns=array("q", (t * MS for t in slow)),
        temperature_c=array("d", (50.0 for _ in slow)),
        memory_used=array("d", (float(memory) for _ in slow)),
        utilization=array("d", (utilization for _ in slow)),
    )
    if counter:
        samples.counter_at_ns = array("q", (t * MS for t in dense))
        samples.counter_j = array("d", (1e6 + watts * floor(t / tick_ms) * tick_ms / 1e3 for t in dense))
    else:
        samples.refused["energy"] = "the energy counter is not supported"
    if not power:
        samples.refused["power"] = "the power is not supported"
    for name, value in changes.items():
        setattr(samples, name, value)
    return samples
