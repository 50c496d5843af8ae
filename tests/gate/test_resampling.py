"""Why the launch is the replicate: requests of one launch agree with each other, whatever the next launch does."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import stdtrit

from pytest_llmperf.calibration.tally import clopper_pearson
from pytest_llmperf.calibration.trials import Trial, fates
from pytest_llmperf.gate import NoisePool, Rules

REQUESTS, BASELINE, LAUNCHES = 30, 5, 8
NOMINAL = 0.05
#: Noise within a launch over that between launches, and how often an interval of nominally 5 % then errs:
#: 2 (1 - Phi(1.96 / sqrt(1 + n r^2))) with n requests and r the inverse of that ratio.
RATIOS = [(1 / 0.3, 0.31), (1.0, 0.72)]
#: For a share of 4000 pairs, whose standard error is 0.0075.
BAND = 0.03


def samples(ratio, pairs, seed=11):
    """The requests' times of a baseline and of a run of the same engine, by pair, launch and request."""
    random = np.random.default_rng(seed)
    launches = 0.01 * random.standard_normal((pairs, BASELINE + LAUNCHES, 1))
    requests = 0.01 * ratio * random.standard_normal((pairs, BASELINE + LAUNCHES, REQUESTS))
    times = np.exp(launches + requests)
    return times[:, :BASELINE], times[:, BASELINE:]


@pytest.mark.parametrize(("ratio", "expected"), RATIOS)
def test_a_t_interval_over_the_requests_of_a_launch_errs_many_times_as_often_as_it_says(ratio, expected):
    baseline, run = samples(ratio, 4000)
    before, after = np.log(baseline[:, 0]), np.log(run[:, 0])
    error = np.sqrt((before.var(axis=-1, ddof=1) + after.var(axis=-1, ddof=1)) / REQUESTS)
    reach = stdtrit(2 * REQUESTS - 2, 1 - NOMINAL / 2) * error
    wrong = np.abs(after.mean(axis=-1) - before.mean(axis=-1)) > reach
    assert wrong.mean() == pytest.approx(expected, abs=BAND)


@pytest.mark.parametrize(("ratio", "expected"), RATIOS)
def test_so_does_a_bootstrap_over_them(ratio, expected):
    baseline, run = samples(ratio, 4000)
    random = np.random.default_rng(12)
    wrong = []
    for before, after in zip(baseline[:1000, 0], run[:1000, 0], strict=True):
        first, second = (
            np.median(one[random.integers(0, REQUESTS, (200, REQUESTS))], axis=-1) for one in (before, after)
        )
        low, high = np.quantile(second / first - 1, [NOMINAL / 2, 1 - NOMINAL / 2])
        wrong.append(not low <= 0 <= high)
    # Medians vary more than means and differ less surely: fewer errors than those of the t interval, and far too many.
    assert 4 * NOMINAL < np.mean(wrong) < expected + BAND


@pytest.mark.parametrize("ratio", [ratio for ratio, _ in RATIOS])
def test_this_gate_keeps_its_level_on_the_same_samples(ratio):
    """With a tolerance of 0 an unchanged engine is exactly at it, where both errors are largest: 5 % here, as above."""
    baseline, run = (np.log(np.median(values, axis=-1)).tolist() for values in samples(ratio, 1000))
    rules = replace(Rules.of_run(1, LAUNCHES), family_alpha=NOMINAL, limit_alpha=NOMINAL, pass_alpha=NOMINAL)
    pool = NoisePool()
    verdicts = [
        fates(Trial("test", "lower", 0.0, before, after), pool, rules)[0].verdict
        for before, after in zip(baseline, run, strict=True)
    ]
    for verdict, allowed in (("regressed", rules.family_alpha), ("pass", rules.pass_alpha)):
        hits = verdicts.count(verdict)
        low, high = clopper_pearson(hits, len(verdicts))
        assert low <= allowed, f"{verdict} in {hits} of {len(verdicts)}"
        assert high < 0.31
    assert verdicts.count("inconclusive") > 0.8 * len(verdicts)


def test_more_requests_make_it_worse():
    """They narrow the interval around a launch that stays as accidental as it was."""
    wrong = []
    for requests in (10, 100):
        random = np.random.default_rng(13)
        effects = 0.01 * random.standard_normal((2000, 2, 1))
        logs = effects + 0.01 * random.standard_normal((2000, 2, requests))
        reach = 1.96 * np.sqrt(logs.var(axis=-1, ddof=1).sum(axis=-1) / requests)
        wrong.append(np.mean(np.abs(np.diff(logs.mean(axis=-1), axis=-1)[:, 0]) > reach))
    assert wrong[0] < wrong[1]
    assert wrong[1] > 1 - 2 * math.sqrt(1 / 100)
