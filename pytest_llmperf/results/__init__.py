"""results.json: the record of a run, as pydantic models from which the published JSON Schema is made.

Everything that a report shows and that a verdict was derived from is in this file. Values are in SI units; what
was not measured is ``null`` with a reason.
"""

from __future__ import annotations

from pytest_llmperf.results.baselines import BaselinesRecord, StaleBaseline
from pytest_llmperf.results.boards import (
    BoardEnergy,
    ClockRecord,
    EnergyRecord,
    MemoryClock,
    NamedBoardEnergy,
    ObservedClock,
)
from pytest_llmperf.results.file import SCHEMA_VERSION, WORST_FIRST, Results, json_schema
from pytest_llmperf.results.findings import Column, Finding, FindingKind, Mark
from pytest_llmperf.results.machine import Engine, Environment, Gpu, Peaks, Run
from pytest_llmperf.results.metrics import ConditionRecord, Definition, MetricValue, Percentiles
from pytest_llmperf.results.outputs import Divergence, Outputs
from pytest_llmperf.results.phases import PhaseRegression, Phases, PhaseWindow
from pytest_llmperf.results.reading import UnknownFieldsWarning, read_results, wrong_field
from pytest_llmperf.results.record import TestRecord
from pytest_llmperf.results.roof import KvLayers, RoofPoint, RoofRecord
from pytest_llmperf.results.serving import Calibration, Client, Overhead, Requests, Search, Server, Trial
from pytest_llmperf.results.timeline import Capped, PhaseSpan, Timeline
from pytest_llmperf.results.verdicts import AdvisoryRecord, GateRecord, NoiseRecord, VerdictRecord

__all__ = [
    "SCHEMA_VERSION",
    "WORST_FIRST",
    "AdvisoryRecord",
    "BaselinesRecord",
    "BoardEnergy",
    "Calibration",
    "Capped",
    "Client",
    "ClockRecord",
    "Column",
    "ConditionRecord",
    "Definition",
    "Divergence",
    "EnergyRecord",
    "Engine",
    "Environment",
    "Finding",
    "FindingKind",
    "GateRecord",
    "Gpu",
    "KvLayers",
    "Mark",
    "MemoryClock",
    "MetricValue",
    "NamedBoardEnergy",
    "NoiseRecord",
    "ObservedClock",
    "Outputs",
    "Overhead",
    "Peaks",
    "Percentiles",
    "PhaseRegression",
    "PhaseSpan",
    "PhaseWindow",
    "Phases",
    "Requests",
    "Results",
    "RoofPoint",
    "RoofRecord",
    "Run",
    "Search",
    "Server",
    "StaleBaseline",
    "TestRecord",
    "Timeline",
    "Trial",
    "UnknownFieldsWarning",
    "VerdictRecord",
    "json_schema",
    "read_results",
    "wrong_field",
]
