"""Verdicts: pure functions from a baseline's launches and a run's launches to a decision with known error rates.

=================  ==========================================================================
`rules`            how wrong the gate may be, spread over comparisons and looks
`noise`            how much launches differ by themselves, pooled over the tests
`decision`         one look: interval, tolerance, verdict
`power`            what could have been seen, and what would decide
`comparison`       one metric of one test: missing and unusable values, what a reader is told
`verdicts`         the verdicts and their order
=================  ==========================================================================
"""

from __future__ import annotations

from pytest_llmperf.gate.comparison import Comparison, again, compare
from pytest_llmperf.gate.decision import Better, Decision, decide, logs
from pytest_llmperf.gate.noise import Noise, NoisePool, Series
from pytest_llmperf.gate.power import below_noise
from pytest_llmperf.gate.rules import Rules
from pytest_llmperf.gate.verdicts import PASSING, SEVERITY, worst

__all__ = [
    "PASSING",
    "SEVERITY",
    "Better",
    "Comparison",
    "Decision",
    "Noise",
    "NoisePool",
    "Rules",
    "Series",
    "again",
    "below_noise",
    "compare",
    "decide",
    "logs",
    "worst",
]
