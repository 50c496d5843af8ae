"""What stands in the table of tests: names, verdicts with what decided them, and how both are cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

from pytest_llmperf.report.units import format_change, printable
from pytest_llmperf.report.wording import (
    badness,
    better_of,
    failed_otherwise,
    format_interval,
    improved,
    verdict_word,
)
from pytest_llmperf.results import TestRecord, VerdictRecord

__all__ = ["SHORT", "abridged", "abridged_end", "before_parameters", "deciding", "labels", "verdict_cell"]

#: What a metric is called where its name does not fit.
SHORT = {
    "copy_bandwidth": "copy", "matmul_flops": "matmul", "peer_to_peer": "peer", "host_to_device": "to device",
    "device_to_host": "to host", "token_agreement": "answers", "logprob_difference": "logprobs",
    "e2e_latency": "latency", "throughput": "tokens/s", "total_throughput": "all tokens/s",
    "request_throughput": "requests/s", "bare_power": "bare", "context_power": "context", "loaded_power": "loaded",
    "locked_power": "locked",
}  # fmt: skip


def labels(nodeids: Sequence[str]) -> list[str]:
    """Ids as names of lines: without the file, and without ``test_`` where every one begins with it.

    Two tests of the same name in two files are told apart by the name of the file before theirs.
    """
    names = [printable(nodeid.partition("::")[2] or nodeid) for nodeid in nodeids]
    plain = names and all(name.rpartition("::")[2].startswith("test_") for name in (n.partition("[")[0] for n in names))
    if plain:
        names = [_without_prefix(name) for name in names]
    alike = Counter(names)
    files = [PurePosixPath(nodeid.partition("::")[0]).stem.removeprefix("test_") for nodeid in nodeids]
    return [printable(f"{file}: {name}") if alike[name] > 1 else name for file, name in zip(files, names, strict=True)]


def _without_prefix(name: str) -> str:
    head, bracket, parameters = name.partition("[")
    classes, colons, function = head.rpartition("::")
    return f"{classes}{colons}{function.removeprefix('test_')}{bracket}{parameters}"


def abridged(name: str, width: int) -> str:
    """A name of at most ``width`` columns, cut in the middle: its parameters stand at the end."""
    if len(name) <= width:
        return name
    if width < 3:
        return name[:width]
    behind = (width - 1) * 3 // 5
    return f"{name[: width - 1 - behind]}…{name[-behind:]}"


def before_parameters(name: str, width: int) -> str:
    """A name of at most ``width`` columns, cut before its parameters where something is left of it."""
    head, bracket, parameters = name.partition("[")
    left = width - len(bracket + parameters) - 1
    if len(name) <= width or not bracket or left < 4:
        return abridged(name, width)
    return f"{head[:left]}…{bracket}{parameters}"


def deciding(test: TestRecord) -> VerdictRecord | None:
    """Of a test's verdicts the one that decided it: of several the one furthest beyond its tolerance."""
    deciding = [v for v in test.verdicts if v.verdict == test.verdict and v.change is not None]
    if test.verdict not in ("regressed", "inconclusive", "improved") or not deciding:
        return improved(test) if test.verdict == "pass" else None
    sign = -1 if test.verdict == "improved" else 1
    return max(deciding, key=lambda v: sign * badness(v, better_of(test.metrics, v.metric)))


def verdict_cell(test: TestRecord, width: int | None = None, *, detailed: bool = False, brief: bool = False) -> str:
    """A test's verdict with the metric that decided it: ``"regressed tpot +7.2 %"``.

    Args:
        test: The record.
        width: It is shortened to this: a large change is rounded, the metric's name cut, then what decided left out.
        detailed: With the interval and the tolerance.
        brief: With the metric's short name.
    """
    word = verdict_word(test)
    decided = deciding(test)
    if decided is None:
        text = f"{word}, but failed" if failed_otherwise(test) else word
        return text if width is None or len(text) <= width else abridged_end(text, width)
    if word == "pass":
        word = "pass,"
    change = format_change(decided.change)
    anchor = " (anchor)" if decided.against == "anchor" and word != "pass," else ""
    name = SHORT.get(decided.metric, decided.metric)
    text = f"{word} {name if brief else decided.metric} {change}{anchor}"
    if detailed and decided.interval is not None:
        text += f" ({format_interval(decided.interval)}), tolerance {decided.tolerance * 100:.1f} %"
    if width is None or len(text) <= width:
        return text
    if decided.change is not None and 0.1 <= abs(decided.change) < 10:
        change = f"{decided.change * 100:+.0f} %"
    room = width - len(f"{word}  {change}")
    shorter = [f"{word} {decided.metric} {change}"]
    shorter += [f"{word} {abridged_end(name, room)} {change}"] if room >= min(4, len(name)) else []
    shorter += [f"{word} {change}", word.rstrip(",")]
    return next((one for one in shorter if len(one) <= width), abridged_end(word.rstrip(","), width))


def abridged_end(text: str, width: int) -> str:
    """A text of at most ``width`` columns, cut at its end."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"[:width]
