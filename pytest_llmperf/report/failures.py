"""What is said of an error that nobody foresaw: a part of a report that fails takes no other part with it."""

from __future__ import annotations

import traceback
from pathlib import Path

from pytest_llmperf.errors import LlmperfError

__all__ = ["told"]

#: Characters of an error's own words.
_LONGEST = 300
_PACKAGE = Path(__file__).parents[1]


def told(error: BaseException) -> str:
    """An error in one line: the sentence of one of ours; of any other its kind, its words, and where it was raised.

    The place is the last line of this package that it came through, for whoever reports it.
    """
    if isinstance(error, LlmperfError):
        return str(error)
    words = " ".join(str(error).split())
    said = type(error).__name__ + (f": {words[:_LONGEST]}{'…' * (len(words) > _LONGEST)}" if words else "")
    place = _place(error)
    return f"{said} ({place})" if place else said


def _place(error: BaseException) -> str | None:
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(_PACKAGE):
            return f"{path.relative_to(_PACKAGE)}, line {frame.lineno}"
    return None
