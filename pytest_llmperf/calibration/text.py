"""What a calibration found, for a terminal of 80 columns and for scripts."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from pytest_llmperf.calibration.findings import Findings, MetricNoise, Outcome, tolerances

__all__ = ["as_json", "render"]

_WIDTH = 80
#: Of names of metrics.
_NAME = 19


def as_json(findings: Findings) -> str:
    """All figures in strict JSON, shares as fractions."""
    material, splits, rules = findings.material, findings.splits, findings.rules
    low, high = findings.false_alarms.interval
    record: dict[str, Any] = {
        "engines": material.engines,
        "simulated": material.simulated,
        "launches": material.launches,
        "tests": len(material.tests),
        "gated": rules.gated,
        "left_out": material.left_out,
        "splits": {
            "baseline_launches": splits.baseline,
            "run_launches": splits.run,
            "judged": len(splits.baselines),
            "possible": splits.possible,
            "disjoint": splits.disjoint,
        },
        "looks": rules.looks,
        "family_alpha": rules.family_alpha,
        "false_alarms": {
            **asdict(findings.false_alarms),
            "share": findings.false_alarms.value,
            "interval": [low, high],
        },
        "test_launches": findings.test_launches,
        "detection": [
            {"metric": one.metric, "worsening": one.worsening, **asdict(one.outcome)} for one in findings.detections
        ],
        "noise": [
            {**asdict(one), "noisiest": [{"test": test, "sd": sd} for test, sd in one.noisiest]}
            for one in findings.noises
        ],
        "below_noise": [
            {"test": test, "metric": metric, "sentence": sentence} for test, metric, sentence in findings.below
        ],
    }
    return json.dumps(record, indent=1, allow_nan=False)


def render(findings: Findings) -> str:
    """At most 80 columns wide."""
    return "\n".join(line for part in _parts(findings) for line in part)


def _parts(findings: Findings) -> Iterator[Iterator[str] | list[str]]:
    yield _what(findings)
    yield _unchanged(findings)
    yield _noises(findings)
    yield _curve(findings)
    if findings.below:
        yield ["", "Tolerances below the noise"]
        for test, metric, sentence in findings.below:
            yield _wrapped(f"{test}, {metric}: {sentence}")
    if findings.material.left_out:
        yield ["", "Left out"]
        for sentence in findings.material.left_out:
            yield _wrapped(sentence)


def _what(findings: Findings) -> Iterator[str]:
    material, splits, rules = findings.material, findings.splits, findings.rules
    for engine in material.engines:
        yield from _wrapped(engine, "")
    if material.simulated:
        yield "SIMULATED: the figures are computed, and are of no real board"
    judged = len(splits.baselines)
    which = "all" if judged == splits.possible else f"a sample of {judged} of the"
    yield from _wrapped(
        f"{len(material.tests)} tests, {rules.gated} gated comparisons, {material.launches} launches: {which} "
        f"{splits.possible} ways to take {splits.baseline} of them as the baseline. The others are the run, in their "
        f"order, looked at after {', '.join(map(str, rules.looks))}.",
        "",
    )


def _unchanged(findings: Findings) -> Iterator[str]:
    alarms, splits = findings.false_alarms, findings.splits
    low, high = alarms.interval
    yield ""
    yield "An unchanged engine"
    yield from _wrapped(
        f"Runs with a false regressed: {alarms.hits} of {alarms.trials} ({alarms.value or 0:.1%}; exact 95 % interval "
        f"{low:.1%} to {high:.1%}). That interval is as if the splits were independent; they are splits of the same "
        f"launches and overlap: only {splits.disjoint} of them could be made without a launch in common."
    )
    yield f"  {'metric':<{_NAME}}    pass  inconclusive  regressed  launches"
    for one in findings.detections:
        if one.worsening == 0:
            share = one.outcome
            yield (
                f"  {one.metric:<{_NAME}}  {_percent(share.passed)}        {_percent(share.inconclusive)}     "
                f"{_percent(share.regressed)}      {share.launches:4.2f}"
            )
    yield from _wrapped(
        f"A test took {findings.test_launches:.2f} launches on average, until all its metrics were decided."
    )


def _noises(findings: Findings) -> Iterator[str]:
    yield ""
    yield "Noise between launches (relative standard deviation)"
    for one in findings.noises:
        yield from _wrapped(f"{one.metric}: {_pooled(one)}; noisiest: {_noisiest(one)}")


def _pooled(noise: MetricNoise) -> str:
    if noise.pooled is None:
        return f"not pooled (too few tests: {noise.tests})"
    return f"{noise.pooled:.2%} pooled over {noise.tests} tests (worth {noise.df:.0f} degrees of freedom)"


def _noisiest(noise: MetricNoise) -> str:
    return ", ".join(f"{test} {sd:.2%}" for test, sd in noise.noisiest)


def _curve(findings: Findings) -> Iterator[str]:
    worsenings = list(dict.fromkeys(one.worsening for one in findings.detections))
    yield ""
    yield "A slower engine: shares of comparisons, by how much worse the value was made"
    yield f"  {'':<{_NAME + 2}}" + "".join(f"{f'{w:.0%}':>7}" for w in worsenings)
    outcomes: dict[str, list[Outcome]] = {}
    for one in findings.detections:
        outcomes.setdefault(one.metric, []).append(one.outcome)
    for metric, found in outcomes.items():
        low, high = tolerances([one for one in findings.material.gated if one.metric == metric])
        allowed = f"{low:.1%}" if low == high else f"{low:.1%} to {high:.1%}"
        yield f"  {metric} (tolerance {allowed})"
        for name in ("regressed", "inconclusive", "passed"):
            yield f"  {'  ' + name:<{_NAME + 2}}" + "".join(f" {_percent(getattr(one, name))}" for one in found)


def _percent(share: float) -> str:
    return f"{f'{share:.1%}':>6}"


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
