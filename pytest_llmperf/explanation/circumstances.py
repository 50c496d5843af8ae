"""What was under test, and where: the fields in which the run's provenance differs from the baseline's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_llmperf.results import TestRecord

__all__ = ["boards_of", "differing_arguments", "under_test"]

_TITLES = {
    "engine": "engine", "engine_version": "engine version", "request": "requests", "driver": "driver",
    "cuda": "CUDA", "python": "Python", "plugin_version": "pytest-llmperf", "boards": "board",
}  # fmt: skip


def under_test(test: TestRecord) -> list[str] | None:
    """Each difference as ``"engine version 0.11.0 (0.10.0 in the baseline)"``; ``None`` when one side is not known."""
    if not test.baseline_provenance or not test.provenance:
        return None
    before, now = ({**side, "boards": boards_of(side)} for side in (test.baseline_provenance, test.provenance))
    before["boards"], now["boards"] = _short(before["boards"], now["boards"])
    # What somebody asked for comes first; another board of the same product is the least of what there is.
    found = differing_arguments(_mapping(before.get("treatment")), _mapping(now.get("treatment")))
    return found + [
        f"{title} {_text(now[name])} ({_text(before[name])} in the baseline)"
        for name, title in _TITLES.items()
        # What one of the two did not record is unknown, and no difference.
        if before.get(name) is not None and now.get(name) is not None and before[name] != now[name]
    ]


def _short(*sides: str | None) -> list[str | None]:
    """Boards by the first group of their UUIDs, where it tells all of them apart as a commit's first digits do."""
    whole = {uuid for side in sides if side is not None for uuid in side.split(", ")}
    first = {uuid: "-".join(uuid.split("-")[:2]) for uuid in whole}
    if len(set(first.values())) < len(whole):
        return list(sides)
    return [None if side is None else ", ".join(first[uuid] for uuid in side.split(", ")) for side in sides]


def boards_of(provenance: Mapping[str, Any] | None) -> str | None:
    """The UUIDs of the boards that a provenance names; ``None`` where none was read."""
    boards = (provenance or {}).get("boards")
    named = boards if isinstance(boards, list) else []
    uuids = [str(board["uuid"]) for board in named if isinstance(board, Mapping) and board.get("uuid")]
    return ", ".join(sorted(uuids)) or None


def differing_arguments(before: Mapping[str, Any], now: Mapping[str, Any], other: str = "in the baseline") -> list[str]:
    """Arguments that only one side was given, or another value of.

    Args:
        before: The arguments of the other side.
        now: Those of this one.
        other: How the other side is called.
    """
    found = []
    for name in sorted(before.keys() | now.keys()):
        if name not in before:
            found.append(f"{name}={_text(now[name])} (not given {other})")
        elif name not in now:
            found.append(f"{name} not given ({_text(before[name])} {other})")
        elif before[name] != now[name]:
            found.append(f"{name}={_text(now[name])} ({_text(before[name])} {other})")
    return found


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
