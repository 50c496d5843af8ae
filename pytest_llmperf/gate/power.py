"""What could have been seen, and what would decide what was not."""

from __future__ import annotations

import math

from pytest_llmperf.gate.decision import Better, Decision, quantile, standard_error
from pytest_llmperf.gate.noise import Noise
from pytest_llmperf.gate.rules import Rules

__all__ = ["advice", "below_noise", "minimum_detectable"]

#: More launches than this are no advice.
_MOST = 50
#: Logarithms of the smallest tolerance that is advised, and of the largest that is written out.
_SMALLEST, _LARGEST = math.log1p(0.0011), math.log1p(1000)
#: Tenths of a percent that are nearer to a whole number than this are that number.
_ROUNDING = 1e-6


def minimum_detectable(noise: Noise, rules: Rules, *, baseline: int, tolerance: float) -> float | None:
    """The smallest relative worsening that the last look calls ``regressed`` with :attr:`Rules.power`; or ``None``.

    It takes the noise as estimated, and leaves out that an earlier look may have called it already.

    Args:
        noise: Between launches.
        rules: Of the run.
        baseline: Launches in the baseline.
        tolerance: Relative.
    """
    if noise.df <= 0:
        return None
    df = _df(noise, rules.launches, baseline)
    error = standard_error(noise.sd, rules.launches, baseline)
    seen = _called(rules, len(rules.looks) - 1, df, error, math.log1p(tolerance))
    seen += quantile(1 - rules.power, df) * error
    return math.expm1(seen) if seen < 50 else None


def _called(rules: Rules, look: int, df: float, error: float, limit: float) -> float:
    """From which estimate on, on the log scale, a look calls a change ``regressed``."""
    unchanged, at_limit = rules.regressed_alphas(look)
    return max(limit + quantile(at_limit, df) * error, quantile(unchanged, df) * error)


def _df(noise: Noise, launches: int, baseline: int) -> float:
    """Degrees of freedom with so many launches in the end."""
    own = (launches - 1) + (baseline - 1)
    pooled = noise.pooled_df if noise.source == "pooled" else 0.0
    return max(noise.df, own + pooled)


def below_noise(noise: Noise, rules: Rules, *, baseline: int, tolerance: float) -> str | None:
    """That a tolerance cannot be kept even by an engine that did not change, in one sentence; or ``None``."""
    if noise.df <= 0:
        return None
    needed = _passable(noise, rules, baseline)
    if math.log1p(tolerance) >= needed:
        return None
    return (
        f"The tolerance of {tolerance:.1%} is below the noise: launches differ by {noise.sd:.2%} (standard deviation; "
        f"was the machine busy?), and with {rules.launches} of them against {baseline} an unchanged engine passes in "
        f"{rules.power:.0%} of the cases only from {_percent(needed)} on."
    )


def _passable(noise: Noise, rules: Rules, baseline: int) -> float:
    """The smallest tolerance, on the log scale, that an unchanged engine passes with the rules' power."""
    df = _df(noise, rules.launches, baseline)
    last = len(rules.looks) - 1
    reach = quantile(rules.passing_alpha(last), df) + quantile(1 - rules.power, df)
    return reach * standard_error(noise.sd, rules.launches, baseline)


def advice(
    decision: Decision,
    noise: Noise,
    rules: Rules,
    *,
    baseline: int,
    current: int,
    tolerance: float,
    better: Better = "lower",
) -> str | None:
    """What would decide an inconclusive comparison: launches, a longer baseline, or another tolerance.

    Args:
        decision: Of the last look.
        noise: Between launches.
        rules: Of the run.
        baseline: Launches in the baseline.
        current: Launches of the run.
        tolerance: Relative.
        better: Which direction of the metric is the better one: a tolerance is told with the change that it allows.
    """
    if noise.df <= 0:
        return (
            f"One launch against {'one' if baseline == 1 else baseline} says nothing of the noise: save a baseline of "
            "5 launches (--llmperf-save), or allow more launches (--llmperf-launches)."
        )
    limit, error = math.log1p(tolerance), standard_error(noise.sd, current, baseline)
    regressing = decision.worse > limit
    needed = _launches(decision.worse, limit, noise, rules, baseline, regressing)
    called = decision.worse > _called(rules, len(rules.looks) - 1, noise.df, error, 0.0)
    narrower = decision.lower if decision.lower > _SMALLEST and called else None
    if needed is None and _printed_alike(decision.worse, limit):
        return _at_the_tolerance(decision.upper, narrower, better)
    verdict = "regressed" if regressing else "pass"
    ways = []
    if needed is not None and needed > current:
        ways.append(f"about {needed} launches (--llmperf-launches={needed})")
    elif needed is None and _launches(decision.worse, limit, noise, rules, _MOST, regressing) is not None:
        ways.append("a baseline of more launches")
    if not regressing:
        ways.append(f"a tolerance of {_percent(decision.upper, better)}")
    elif narrower is not None:
        ways.append(f"a tolerance below {_percent(narrower, better, up=False)}")
    if len(ways) == 1 and needed is None:
        return f"The change is about as large as the tolerance: {ways[0]} would make it {verdict}."
    return f"If the change is what it seems, {' or '.join(ways)} would make it {verdict}." if ways else None


def _printed_alike(worse: float, limit: float) -> bool:
    """Whether a change and a tolerance read the same: which of them is larger then says nothing to a reader."""
    return worse < _LARGEST and limit < _LARGEST and f"{math.expm1(worse):.1%}" == f"{math.expm1(limit):.1%}"


def _at_the_tolerance(upper: float, narrower: float | None, better: Better) -> str:
    """The advice on a change that is as large as the tolerance: the same on both sides of it.

    Args:
        upper: The upper bound of the change, on the log scale.
        narrower: The lower bound, where a tolerance below it would make the change ``regressed``.
        better: Which direction is the better one.
    """
    told = f"a tolerance of {_percent(upper, better)} would make it pass"
    if narrower is not None:
        told += f", one below {_percent(narrower, better, up=False)} regressed"
    return f"The change is as large as the tolerance, and launches do not decide that: {told}."


def _launches(worse: float, limit: float, noise: Noise, rules: Rules, baseline: int, regressing: bool) -> int | None:
    """How many launches would decide, if the estimate stays; ``None`` when no number of them would."""
    for launches in range(1, _MOST + 1):
        plan = Rules.of_run(rules.gated, max(launches, rules.launches))
        last = len(plan.looks) - 1
        df, error = _df(noise, launches, baseline), standard_error(noise.sd, launches, baseline)
        if regressing:
            decides = worse > _called(plan, last, df, error, limit)
        else:
            decides = worse + quantile(plan.passing_alpha(last), df) * error < limit
        if decides:
            return launches
    return None


def _percent(log: float, better: Better = "lower", *, up: bool = True) -> str:
    """A tolerance to write down, beyond a bound by up to a tenth of a percent.

    Of a metric of which more is better it is followed by the change that it allows: 5 % is down to -4.8 %.
    """
    if log > _LARGEST:
        return f"more than {math.expm1(_LARGEST):.0%}"
    # A bound that is a tenth but for rounding is not beyond itself.
    tenths = math.expm1(log) * 1000
    named = (math.floor(tenths + _ROUNDING) + 1 if up else math.ceil(tenths - _ROUNDING) - 1) / 10
    return f"{named:.1f} %" if better == "lower" else f"{named:.1f} % (down to {-100 * named / (100 + named):.1f} %)"
