"""The whole file and its schema."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field
from pydantic_core import PydanticSerializationError

from pytest_llmperf.results.base import Model
from pytest_llmperf.results.baselines import BaselinesRecord
from pytest_llmperf.results.findings import Finding
from pytest_llmperf.results.machine import Environment, Run
from pytest_llmperf.results.metrics import Definition
from pytest_llmperf.results.record import TestRecord
from pytest_llmperf.results.verdicts import GateRecord

__all__ = ["SCHEMA_VERSION", "WORST_FIRST", "Results", "json_schema"]

SCHEMA_VERSION = 1

#: How reports sort tests: what a change of the engine did, then what nobody knows, then what is well.
WORST_FIRST = (
    "regressed",
    "inconclusive",
    "invalid",
    "incomparable",
    "no-baseline",
    "improved",
    "pass",
    "not-applicable",
    "measured",
)


class Results(Model):
    """The whole file."""

    schema_version: Literal[1]
    run: Run
    environment: Environment
    definitions: dict[str, Definition] = Field(default={}, description="of the metrics, by name")
    gate: GateRecord | None = Field(default=None, description="null when nothing was gated")
    tests: list[TestRecord]
    findings: list[Finding] = Field(default=[], description="what several tests say together")
    baselines: BaselinesRecord | None = Field(default=None, description="of a gating run that came to its end")

    def worst_first(self) -> list[TestRecord]:
        """The tests, those that need a reader first."""
        return sorted(self.tests, key=lambda test: WORST_FIRST.index(test.verdict))

    def to_json(self, indent: int | None = 1) -> str:
        """Strict JSON: no NaN and no Infinity, which arguments of an engine may be; null in their place.

        Args:
            indent: Spaces a level; ``None`` for all on one line.
        """
        try:
            return self.model_dump_json(indent=indent) + "\n"
        except PydanticSerializationError:  # of a lone surrogate, which can only be written escaped
            return json.dumps(self.model_dump(mode="json"), indent=indent, allow_nan=False) + "\n"


def json_schema() -> str:
    """The JSON Schema of results.json, as published beside this module."""
    schema = Results.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
