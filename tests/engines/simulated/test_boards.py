"""Offers on boards with clocks, a power limit and sensors: steps done at once, and one by one."""

from __future__ import annotations

import random

import pytest

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Offer
from pytest_llmperf.gpu.simulated import SimulatedBoards
from tests.engines.simulated.engines import carry, requests, simulated

CASES = {
    "plain": {},
    "slow": {"slowdown": 3.0},
    "fast": {"slowdown": 0.3},
    "noisy": {"launch_noise": 0.02, "repeat_noise": 0.01},
    "capped": {"power_scale": 1.7},
    "often capped": {"power_scale": 2.2},
    "synchronous": {"async_scheduling": False},
    "eager": {"enforce_eager": True},
    "few blocks": {"num_gpu_blocks_override": 300, "max_model_len": 4096},
    "prefix cache": {"enable_prefix_caching": True},
    "two boards": {"tensor_parallel_size": 2},
    "a low clock": {"clock": 705},
}


def served(clock=None, *, at_once, **settings):
    draw, due, at = random.Random(4), [], 0
    for _ in range(40):
        at += round(draw.expovariate(draw.choice([1, 40])) * NS_PER_S)
        due.append(at)
    boards = SimulatedBoards("h200")
    group = boards.group(settings.get("tensor_parallel_size", 1))
    if clock is not None:
        boards.devices[0].lock_sm_clock(clock)
    if not at_once:
        group.foresee = lambda *_: None
    asked = requests(*[(draw.randint(1, 2000), draw.randint(1, 400)) for _ in due])
    traces = carry(simulated(board=group, **settings), Offer(asked, tuple(due)))[0]
    return traces, [device.energy_j() for device in boards.devices], len(boards.devices[0].history)


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES)
def test_steps_done_at_once_change_nothing(settings):
    (traces, joules, levels), (others, other_joules, more) = (served(**settings, at_once=way) for way in (True, False))
    for one, other in zip(traces, others, strict=True):
        # What the limit begins at follows from a running mean, and its rounding from how it was summed up.
        assert one.received_ns == pytest.approx(other.received_ns, abs=10, rel=0)
        assert (one.error, one.output_tokens) == (other.error, other.output_tokens)
    assert [each - 100_000 for each in joules] == pytest.approx([each - 100_000 for each in other_joules], rel=1e-6)
    assert levels <= more


def test_most_steps_are_done_at_once():
    assert served(at_once=True)[2] < served(at_once=False)[2] / 2
