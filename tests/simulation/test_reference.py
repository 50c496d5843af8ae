"""A simulated H200 beside real ones. Tests that stand and fall with the figures in its file are here."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.simulation.fit import gains_of
from benchmarks.simulation.trial import points_of, simulate
from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.gpu.simulated import SimulatedDevice
from pytest_llmperf.simulation.board import BoardModel
from tests.engines.simulated.engines import at_once, simulated

MEASURED = Path(__file__).parents[2] / "benchmarks" / "simulation" / "measured"
H200 = BoardModel.named("h200")

#: Relative errors that are allowed.
ALLOWED = {"ttft": 0.2, "tpot": 0.1, "throughput": 0.1, "power": 0.1}
#: The share of all points that keeps to them. TTFT of a few short prompts hangs on when each reached the engine.
MOST = {"ttft": 0.8, "tpot": 0.95, "throughput": 0.9, "power": 0.95}


def errors(point, gain=1.0):
    """Relative errors by figure, of those that were measured."""
    made = simulate(point, H200, gain=gain)
    return {name: made[name] / figure - 1 for name in ALLOWED if (figure := point.figures[name]) is not None}


@pytest.mark.parametrize("point", points_of(MEASURED / "h200-reference.json"), ids=lambda point: point.test)
def test_mistral_is_near_what_was_measured(point):
    found = errors(point)
    assert set(found) == set(ALLOWED)
    assert {name: error for name, error in found.items() if abs(error) > ALLOWED[name]} == {}


def test_so_are_other_loads_models_and_engine_arguments():
    points = [point for file in sorted(MEASURED.glob("h200-*.json")) for point in points_of(file)]
    gains = gains_of(H200, points)  # boards of one product differ in what they draw
    found = [errors(point, gains.get(point.board, 1.0)) for point in points]
    assert len(found) > 90
    for name, allowed in ALLOWED.items():
        near = [abs(each[name]) <= allowed for each in found if name in each]
        assert sum(near) >= MOST[name] * len(near), name


def test_the_boards_counters_show_what_is_known_of_decode():
    device = SimulatedDevice(H200)
    (trace,) = at_once(simulated(gpu=H200, board=device), (512, 256))
    inside = device.timeline.inside
    span = inside(trace.first_ns), inside(trace.last_ns)
    assert device.history.mean("dram", *span) == pytest.approx(0.62, abs=0.05)
    assert device.history.mean("busy", *span) == pytest.approx(1, abs=0.01)
    assert device.history.mean("tensor", *span) < 0.05
    assert span[1] - span[0] > NS_PER_S
