"""Reading and writing baseline files.

A file carries a digest of its content, so that a number which nobody measured is noticed: a baseline that was edited
by hand, or put together from two sides of a merge, is refused. The digest is of the content and not of the text;
indentation, order of keys and line ends may change.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_llmperf.baselines.identity import Identity, same_but_for_workload
from pytest_llmperf.baselines.migration import migrated
from pytest_llmperf.baselines.model import SCHEMA_VERSION, Baseline
from pytest_llmperf.baselines.paths import group_folder
from pytest_llmperf.errors import BaselineError
from pytest_llmperf.files import write_atomically

__all__ = ["DIGESTED_SINCE", "digest_of", "load", "of_group", "read", "read_all", "store"]

_STORE = "store a new one with --llmperf-save."
_RESTORE = f"Restore it from version control, or {_STORE}"
_MERGE_MARKERS = re.compile(r"^(<{7}|>{7})(?: |$)", re.MULTILINE)
#: The first version whose files carry a digest.
DIGESTED_SINCE = 2


def load(path: Path) -> Baseline | None:
    """Read a baseline; ``None`` when there is no such file.

    Raises:
        BaselineError: it cannot be read, was edited, or holds what no baseline may hold (NaN, negative numbers, text).
    """
    found = read(path)
    return None if found is None else found[0]


def read(path: Path) -> tuple[Baseline, int] | None:
    """Read a baseline, and tell the schema version of its file; ``None`` when there is no such file.

    Raises:
        BaselineError: as :func:`load`.
    """
    try:
        if path.exists() and not path.is_file():
            raise BaselineError(f"The baseline {path} cannot be read (it is not a file).")
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"The baseline {path} cannot be read ({error}).", remedy=_RESTORE) from None
    try:
        content = _parsed(text)
        version = _version(content, path)
        stated = content.pop("digest", None) if version >= DIGESTED_SINCE else None
        # Through JSON again: there a list may stand for a tuple, and nothing else for anything.
        baseline = Baseline.model_validate_json(json.dumps(migrated(content)))
        if version >= DIGESTED_SINCE and stated != digest_of(content):
            raise _unusable(path, "digest: the content is not what was stored; it was edited, or merged")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise _unusable(path, f"{where}: {first['msg']}") from None
    except RecursionError:
        raise _unusable(path, "the file: it is nested too deeply") from None
    except ValueError as error:
        if _MERGE_MARKERS.search(text):
            why = "it holds merge markers, of a conflict that was not resolved"
            raise _unusable(path, why, f"Take one side of the conflict, or {_STORE}") from None
        raise _unusable(path, f"the file: {error}") from None
    return baseline, version


def _unusable(path: Path, why: str, remedy: str = _RESTORE) -> BaselineError:
    return BaselineError(f"The baseline {path} is unusable: {why}.", remedy=remedy)


def _parsed(text: str) -> dict[str, Any]:
    content = json.loads(text, object_pairs_hook=_object)
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")  # noqa: TRY004  # of the file's content, as what json.loads raises
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; of two equal keys, which parsers read differently, no one knows the one that is meant."""
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise ValueError(f"the key {key!r} stands in it twice")
        content[key] = value
    return content


def _version(content: dict[str, Any], path: Path) -> int:
    version = content.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"schema_version is {version!r}, which no version of pytest-llmperf writes")
    if version > SCHEMA_VERSION:
        raise _unusable(
            path,
            f"it is of schema_version {version}, and this pytest-llmperf reads up to {SCHEMA_VERSION}",
            remedy="Install the pytest-llmperf that has stored it, or a newer one.",
        )
    return version


def digest_of(content: dict[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a file's content but for the digest itself, in hexadecimal.

    Raises:
        ValueError: the content holds NaN or an infinity.
    """
    canonical = json.dumps(_canonical(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def _canonical(value: Any) -> Any:
    """The same value with one spelling for each number: other tools write 700.0 as 700."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _canonical(item) for key, item in value.items()}
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def store(path: Path, baseline: Baseline) -> None:
    """Write a baseline with its digest, so that a reader sees the old file or the new one, never a part.

    Raises:
        BaselineError: the folder cannot be written.
    """
    content = baseline.model_dump(mode="json")
    head = {"schema_version": content.pop("schema_version")}
    head["digest"] = digest_of({**head, **content})
    text = json.dumps({**head, **content}, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        write_atomically(path, text)
    except OSError as error:
        raise BaselineError(
            f"The baseline {path} cannot be written ({error}).",
            remedy="Make the folder writable, or give another with --llmperf-baselines.",
        ) from None


def read_all(root: Path) -> list[tuple[Path, Baseline | BaselineError]]:
    """Every file under a folder, in the order of their names: the baseline, or why it cannot be used."""
    found: list[tuple[Path, Baseline | BaselineError]] = []
    for path in sorted(root.rglob("*.json")):
        try:
            baseline = load(path)
        except BaselineError as error:
            found.append((path, error))
        else:
            if baseline is not None:  # or it was removed meanwhile
                found.append((path, baseline))
    return found


def of_group(root: Path, identity: Identity) -> list[Baseline]:
    """The readable baselines of the same hardware, model and clock that differ from an identity in the workload only.

    Args:
        root: The folder of all baselines.
        identity: Of any of them; one with the very same workload is among the answers.
    """
    return [
        baseline
        for _, baseline in read_all(group_folder(root, identity))
        if isinstance(baseline, Baseline) and same_but_for_workload(baseline.identity, identity)
    ]
