"""Launches as the gate takes them, and a normal distribution that several tests draw from."""

import math
import random
from itertools import count

from pytest_llmperf.gate import Noise, decide
from pytest_llmperf.metrics import Summary


def summary(*launches, reason=None):
    """Launches of one repeat each, or of a list of repeats; none at all is a metric that was not measured."""
    if not launches:
        return Summary(None, (), None, reason or "not measured")
    return Summary(1.0, tuple(tuple(v) if isinstance(v, list) else (v,) for v in launches), None, None)


def known(sd, df):
    """A noise that is known from elsewhere, and not from the test's own launches."""
    return Noise(sd, df, pooled_sd=sd, pooled_df=df, tests=5, source="pooled")


def sequence(rules, change, *, tolerance, sd, seed, baseline=5, pooled_df=None):
    """Look after look at one simulated test, until it is decided.

    Args:
        rules: Of the run.
        change: The true one: relative, more is worse.
        tolerance: Relative.
        sd: Between launches, of the logarithm.
        seed: Of the draws.
        baseline: How many launches it has.
        pooled_df: What the other tests know of the noise; without, the test stands alone.

    Returns:
        The verdict, and after how many launches.
    """
    draw = random.Random(seed).gauss
    before = [draw(0, sd) for _ in range(baseline)]
    after = [draw(math.log1p(change), sd) for _ in range(rules.launches)]
    pool = () if pooled_df is None else (sd, pooled_df, 5)
    for look, launches in zip(count(), rules.looks, strict=False):
        noise = Noise.judged((before, after[:launches]), *pool)
        found = decide(
            before, after[:launches], better="lower", tolerance=tolerance, noise=noise, rules=rules, look=look
        )
        if found.verdict != "inconclusive":
            break
    return found.verdict, launches
