"""A comparison through the gate, look by look."""

import math
import random

import pytest

from pytest_llmperf.calibration.trials import Fate, Trial, fates, of_test
from pytest_llmperf.gate import NoisePool, Rules, Series, compare
from pytest_llmperf.metrics import Summary

RULES = Rules.of_run(4, 8)


def noisy(count, seed, sd=0.02):
    draw = random.Random(seed)
    return [draw.gauss(0, sd) for _ in range(count)]


def in_a_session(trial, pool, worsening):
    """As a session does it: after each look's launches the whole comparison."""
    factor = (1 + worsening) ** (1 if trial.better == "lower" else -1)

    def summary(logs, factor=1.0):
        launches = tuple((math.exp(log) * factor,) for log in logs)
        return Summary(launches[0][0], launches, None, None)

    for launches in RULES.looks:
        found = compare(
            "tpot",
            summary(trial.baseline),
            summary(trial.current[:launches], factor),
            better=trial.better,
            tolerance=trial.tolerance,
            rules=RULES,
            pool=pool,
            test=trial.test,
        )
        if found.decided:
            break
    return Fate(found.verdict, found.launches)


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize("seed", range(6))
def test_a_comparison_ends_as_it_would_in_a_session(better, seed):
    pool = NoisePool([Series(str(i), "one", tuple(noisy(5, 100 * seed + i))) for i in range(6)])
    trial = Trial("0", better, 0.03, noisy(5, 100 * seed), noisy(8, 900 + seed))
    worsenings = (0.0, 0.03, 0.05, 0.08, 0.15)
    assert fates(trial, pool, RULES, worsenings) == [in_a_session(trial, pool, worse) for worse in worsenings]


def test_slower_is_worse_in_either_direction():
    calm = [0.0, 0.001, -0.001, 0.0005, -0.0005]
    for better in ("lower", "higher"):
        trial = Trial("t", better, 0.03, calm, [*calm, 0.0, 0.0, 0.0])
        verdicts = [one.verdict for one in fates(trial, NoisePool(), RULES, (0.0, 0.2))]
        assert verdicts == ["pass", "regressed"]


def test_what_is_never_decided_took_all_launches():
    trial = Trial("t", "lower", 0.001, noisy(5, 1), noisy(8, 2))
    assert fates(trial, NoisePool(), RULES) == [Fate("inconclusive", 8)]


def test_a_test_goes_on_until_all_is_decided_or_anything_has_regressed():
    assert of_test([Fate("pass", 1), Fate("pass", 4)]) == 4
    assert of_test([Fate("pass", 1), Fate("inconclusive", 8)]) == 8
    assert of_test([Fate("regressed", 3), Fate("inconclusive", 8), Fate("regressed", 2)]) == 2
