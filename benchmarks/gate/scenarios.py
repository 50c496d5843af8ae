"""Samples with known noise: launches that differ, and repeats within them that differ as well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = [
    "BASELINE",
    "LAUNCHES",
    "METRICS",
    "SCENARIOS",
    "TESTS",
    "TOLERANCE",
    "WORSENINGS",
    "Scenario",
    "draw",
    "launch_sd",
]

TESTS, METRICS = 10, 4
#: Launches of a baseline, and the most that a run may take.
BASELINE, LAUNCHES = 5, 8
TOLERANCE = 0.03
#: By how much the run's values are made worse; the first is the unchanged engine.
WORSENINGS = (0.0, TOLERANCE, 0.05, 0.10)
#: The bimodal machine: how much slower it is, and in what share of the launches.
_SLOWER, _OFTEN = 0.04, 0.3

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Scenario:
    """How samples are drawn; noise is relative (of the logarithm).

    Attributes:
        name: For tables.
        between: Standard deviation between launches.
        ratio: That within a launch (between its repeats) over that between launches.
        tails: ``"gaussian"``, or ``"t3"``: Student's t of 3 degrees of freedom, scaled to the same deviation.
        bimodal: Whether the machine is 4 % slower in 30 % of the launches; all tests of a launch are.
        shared: Share of the variance between launches that all tests and metrics of a launch have in common.
        spread: Standard deviation of the logarithm of the tests' noises: how unlike each other they are.
        alike: Whether the metrics of a test are the same quantity, as they are where all follow from one time.
        repeats: Of a launch.
    """

    name: str
    between: float = 0.007
    ratio: float = 1.0
    tails: str = "gaussian"
    bimodal: bool = False
    shared: float = 0.0
    spread: float = 0.0
    alike: bool = False
    repeats: int = 5


SCENARIOS = (
    Scenario("within 0.3 of between", ratio=0.3),
    Scenario("within as between"),
    Scenario("within 3 x between", ratio=3.0),
    Scenario("half shared by all tests", shared=0.5),
    Scenario("all shared by all tests", shared=1.0),
    Scenario("heavy tails (t3)", tails="t3"),
    Scenario("heavy tails, shared", tails="t3", shared=1.0),
    Scenario("bimodal machine", bimodal=True),
    Scenario("tests unlike each other", spread=0.5),
    Scenario("unlike, shared", spread=0.5, shared=1.0),
)


def draw(scenario: Scenario, random: np.random.Generator) -> tuple[Array, Array]:
    """A baseline and a run of the same engine: values by comparison, launch and repeat.

    The comparisons are those of the tests' metrics, test by test. The values are near 1; less is better.
    """
    launches = BASELINE + LAUNCHES
    shape = (TESTS, 1 if scenario.alike else METRICS)
    size = np.exp(scenario.spread * random.standard_normal((*shape, 1)))
    common = _noise(scenario, random, (launches,))
    own = _noise(scenario, random, (*shape, launches))
    effects = size * scenario.between * (math.sqrt(scenario.shared) * common + math.sqrt(1 - scenario.shared) * own)
    if scenario.bimodal:
        effects = effects + math.log1p(_SLOWER) * (random.random(launches) < _OFTEN)
    within = scenario.between * scenario.ratio * _noise(scenario, random, (*shape, launches, scenario.repeats))
    logs = effects[..., None] + size[..., None] * within
    values = np.exp(np.broadcast_to(logs, (TESTS, METRICS, launches, scenario.repeats)))
    flat = values.reshape(TESTS * METRICS, launches, scenario.repeats)
    return flat[:, :BASELINE], flat[:, BASELINE:]


def launch_sd(scenario: Scenario, *, draws: int = 2000) -> float:
    """The standard deviation of a launch's median, from samples of a seed of their own."""
    random = np.random.default_rng(20)
    logs = [np.log(np.median(draw(scenario, random)[0], axis=-1)) for _ in range(draws)]
    return float(np.std(np.stack(logs)))


def _noise(scenario: Scenario, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Of standard deviation 1."""
    if scenario.tails == "t3":
        return random.standard_t(3, shape) / math.sqrt(3)
    return random.standard_normal(shape)
