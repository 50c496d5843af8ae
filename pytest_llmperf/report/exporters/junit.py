"""What a test's entry in a JUnit file says besides passed or failed: ``<property>`` elements, read from its records.

Names begin with ``llmperf.``; those of a named measurement with ``llmperf[NAME].``, those of a comparison with an
anchor have ``.anchor`` after the metric. Numbers are in SI units, changes are relative, and what is not known is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_llmperf.report.units import printable
from pytest_llmperf.report.wording import unit_of
from pytest_llmperf.results import WORST_FIRST

__all__ = ["properties"]

#: Of a verdict's record, in this order.
_FIELDS = ("value", "unit", "baseline", "change", "interval", "tolerance")


def properties(nodeid: str, records: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The properties of one test.

    Args:
        nodeid: The test's id.
        records: Its records as results.json keeps them: one, or one for each named measurement.
    """
    records = list(records)
    if not records:
        return []
    worst = min((record["verdict"] for record in records), key=WORST_FIRST.index)
    found = [("llmperf.verdict", worst)]
    for record in records:
        name = record["nodeid"].removeprefix(nodeid).removeprefix("#")
        found += _of_record(record, f"llmperf[{name}]" if name else "llmperf")
    return [(printable(name), printable(value)) for name, value in found]


def _of_record(record: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    if prefix != "llmperf":
        yield f"{prefix}.verdict", record["verdict"]
    if (record.get("engine") or {}).get("simulated"):
        yield f"{prefix}.simulated", "true"
    if record.get("invalid"):
        yield f"{prefix}.invalid", record["invalid"]
    for verdict in record["verdicts"]:
        anchor = ".anchor" if verdict.get("against") == "anchor" else ""
        name = f"{prefix}.{verdict['metric']}{anchor}"
        yield f"{name}.verdict", verdict["verdict"]
        known = {**verdict, "value": verdict["current"], "unit": unit_of(record["metrics"], verdict["metric"])}
        for field in _FIELDS:
            if (value := known.get(field)) is not None and (field != "unit" or verdict["current"] is not None):
                yield f"{name}.{field}", _text(value)
        if verdict.get("advice"):
            yield f"{name}.advice", verdict["advice"]
    explanation: Sequence[str] = record.get("explanation") or ()
    yield from ((f"{prefix}.explanation", sentence) for sentence in explanation[:1])


def _text(value: Any) -> str:
    """Numbers with seven digits, and both ends of an interval with a space between them."""
    if isinstance(value, str):
        return value
    return " ".join(f"{end:.7g}" for end in value) if isinstance(value, list | tuple) else f"{value:.7g}"
