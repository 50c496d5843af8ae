"""What moved with a verdict, and the verdict derived again: from the record of a run alone, nothing is measured."""

from __future__ import annotations

from pytest_llmperf.explanation.movement import EnergySplit, Movement, Part
from pytest_llmperf.explanation.sentences import Explanation, explain

__all__ = ["EnergySplit", "Explanation", "Movement", "Part", "explain"]
