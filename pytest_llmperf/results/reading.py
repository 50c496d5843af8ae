"""How results.json is read, also that of another version of the plugin."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.results.file import SCHEMA_VERSION, Results

__all__ = ["UnknownFieldsWarning", "read_results", "wrong_field"]

#: So many unknown fields are named.
_NAMED = 5


class UnknownFieldsWarning(UserWarning):
    """A results.json holds fields that this version of the plugin does not have; they were left out."""


def read_results(path: Path) -> Results:
    """Read a results.json.

    The schema forbids fields that it does not have, so that nothing undocumented is ever written. A file of another
    version may hold some: they are left out, with an :class:`UnknownFieldsWarning` that names them.

    Raises:
        ResultsError: it cannot be read, or is not of this schema; names the file and the first wrong field.
    """
    try:
        text = path.read_text(encoding="utf-8")
        try:
            return Results.model_validate_json(text)
        except ValidationError as error:
            unknown = [one["loc"] for one in error.errors(include_url=False) if one["type"] == "extra_forbidden"]
            if not unknown:
                raise
        document = json.loads(text)
        for place in unknown:
            _drop(document, place)
        results = Results.model_validate_json(json.dumps(document))
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(
            f"{path} cannot be read ({error}).", remedy="Give a folder that a run has written."
        ) from None
    except ValidationError as error:
        raise ResultsError(f"{path} is no results.json of schema {SCHEMA_VERSION}: {wrong_field(error)}.") from None
    writer = results.run.plugin_version
    told = f"{path} (of pytest-llmperf {writer}) holds fields that this version does not know, and leaves out"
    warnings.warn(f"{told}: {_names(unknown)}.", UnknownFieldsWarning, stacklevel=2)
    return results


def wrong_field(error: ValidationError) -> str:
    """The first field that does not fit the schema, and what is wrong with it."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the file"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def _drop(document: Any, place: Sequence[int | str]) -> None:
    *within, name = place
    for part in within:
        document = document[part]
    document.pop(name, None)


def _names(places: Sequence[Sequence[int | str]]) -> str:
    """``"tests.energy.seconds (12 times), run.host"``."""
    counts = Counter(".".join(part for part in place if isinstance(part, str)) for place in places)
    named = [f"{name[:80]} ({count} times)" if count > 1 else name[:80] for name, count in counts.items()]
    more = [f"{len(named) - _NAMED} more"] if len(named) > _NAMED else []
    return ", ".join([*named[:_NAMED], *more])
