"""``python -m pytest_llmperf baselines``: what is stored, what is wrong with it, and what mends it in one go."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pytest_llmperf.baselines.model import SCHEMA_VERSION, Baseline
from pytest_llmperf.baselines.paths import baseline_path
from pytest_llmperf.baselines.storage import DIGESTED_SINCE, read, store
from pytest_llmperf.baselines.succession import pinned
from pytest_llmperf.baselines.upkeep import age_warnings, few_launches
from pytest_llmperf.errors import BaselineError

__all__ = ["main"]

_WIDTH = 80


def main(argv: list[str]) -> int:
    """Run the command; 0 when nothing is wrong with the baselines, 1 on problems, 2 on wrong usage."""
    try:
        return _run(_parser().parse_args(argv))
    except BaselineError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pytest_llmperf baselines",
        description="List stored baselines, a line each, with what is wrong with them; exit status 1 on problems.",
    )
    parser.add_argument("folder", type=Path, help="the folder of the baselines")
    parser.add_argument(
        "--migrate",
        action="store_true",
        help="rewrite files of old schema versions in place; one without digest is vouched for as it stands",
    )
    parser.add_argument(
        "--pin", action="store_true", help="make the present content the anchor that later changes are held to"
    )
    parser.add_argument("--test", metavar="PATTERN", help="only tests whose id is like this; * stands for anything")
    parser.add_argument(
        "--max-age", metavar="DAYS", type=float, default=90, help="after which a baseline is old (90; 0: never)"
    )
    return parser


@dataclass(frozen=True)
class _File:
    """One file that was looked at: what it holds, or why it cannot be used; what is to be known of its rewriting."""

    path: Path
    baseline: Baseline | None
    version: int = SCHEMA_VERSION
    error: str | None = None
    note: str | None = None


def _run(options: argparse.Namespace) -> int:
    root: Path = options.folder
    if not root.is_dir():
        raise BaselineError(f"{root} is no folder.", remedy="Give the folder that --llmperf-baselines names.")
    files = [file for path in sorted(root.rglob("*.json")) if (file := _look(path)) and _asked_for(file, options.test)]
    if not files:
        which = f" of tests like {options.test!r}" if options.test else ""
        raise BaselineError(f"{root} holds no baselines{which}.", remedy="Store some with: pytest --llmperf-save")
    changed = 0
    if options.migrate or options.pin:
        files, changed = _rewritten(files, pin=options.pin)
    problems = {file.path: _problems(root, file, options.max_age) for file in files}
    for line in _listed(root, files, problems):
        print(line)
    wrong = sum(bool(found) for found in problems.values())
    counts = [f"{len(files)} baseline{'s' if len(files) > 1 else ''}", f"{wrong} with problems"]
    print(", ".join([*counts, f"{changed} rewritten"] if changed else counts))
    return 1 if wrong else 0


def _rewritten(files: list[_File], *, pin: bool) -> tuple[list[_File], int]:
    """The files after those that have to change were stored again, and how many these are."""
    after, changed = [], 0
    for file in files:
        wanted = pinned(file.baseline) if pin and file.baseline is not None else file.baseline
        if wanted is not None and (wanted != file.baseline or file.version < SCHEMA_VERSION):
            store(file.path, wanted)
            changed += 1
            after.append(_File(file.path, wanted, note=_vouched(file.version)))
        else:
            after.append(file)
    return after, changed


def _vouched(version: int) -> str | None:
    """That a file without digest got one, whatever it holds."""
    if version >= DIGESTED_SINCE:
        return None
    return (
        f"The file was of schema version {version}, without a digest, and nothing showed whether it was edited: its "
        "new one vouches for what stands there now. Review the difference."
    )


def _look(path: Path) -> _File | None:
    try:
        found = read(path)
    except BaselineError as error:
        return _File(path, None, error=str(error))
    return None if found is None else _File(path, *found)


def _asked_for(file: _File, pattern: str | None) -> bool:
    """Whether a file's test is meant; brackets stand for themselves, as they do in ids of tests."""
    if pattern is None:
        return True
    if file.baseline is None:
        return False
    test, literal = file.baseline.test, pattern.replace("[", "[[]")
    return any(fnmatch.fnmatchcase(name, literal) for name in (test, test.partition("::")[2]))


def _listed(root: Path, files: Sequence[_File], problems: Mapping[Path, Sequence[str]]) -> Iterator[str]:
    """A heading for each place and file of tests, a line a baseline; what is wrong with several is told once, below."""
    counts = Counter(problem for found in problems.values() for problem in dict.fromkeys(found))
    shared = [problem for problem, count in counts.items() if count > 1]
    columns = [max(len(row[place]) for row in rows) for place in range(3)] if (rows := _rows(files)) else []
    heading = None
    for file in files:
        if (above := _heading(root, file)) != heading:
            yield from _wrapped(above)
            heading = above
        found = problems[file.path]
        marks = [f"problem {shared.index(problem) + 1}" for problem in found if problem in shared]
        yield from _joined(_aligned([*_fields(file), *marks], columns))
        for problem in found:
            if problem not in shared:
                yield from _wrapped(f"problem: {problem}", 4)
        if file.note is not None:
            yield from _wrapped(f"note: {file.note}", 4)
    for number, problem in enumerate(shared, 1):
        yield from _wrapped(f"problem {number}, of {counts[problem]} baselines: {problem}")


def _heading(root: Path, file: _File) -> str:
    """What lies together: hardware, model and clock, and the file of the tests."""
    if file.baseline is None:
        return "unusable"
    group = "/".join(file.path.relative_to(root).parts[:2])
    path, separator, _ = file.baseline.test.partition("::")
    return _printable(f"{group}: {path}" if separator else group)


def _fields(file: _File) -> list[str]:
    if file.baseline is None:
        return [str(file.path)]
    baseline = file.baseline
    kind, version = str(baseline.provenance.get("engine", "engine")), baseline.provenance.get("engine_version")
    engine = str(version) if str(version).startswith(f"{kind}:") else f"{kind} {version or 'unknown'}"
    launches = f"{baseline.launches} launch{'es' if baseline.launches != 1 else ''}"
    anchor = [] if baseline.anchor is None else [f"anchor of {baseline.anchor.saved_at[:10]}"]
    test = baseline.test.partition("::")[2] or baseline.test
    return [_printable(test), launches, baseline.saved_at[:10], _printable(engine), *anchor]


def _rows(files: Sequence[_File]) -> list[list[str]]:
    """The fields of usable baselines whose tests have names of ordinary length."""
    rows = [_fields(file) for file in files if file.baseline is not None]
    return [row for row in rows if len(row[0]) <= _WIDTH // 2]


def _aligned(fields: Sequence[str], columns: Sequence[int]) -> list[str]:
    """Fields that begin below each other; the last one keeps its length."""
    padded = [f"{field:<{wide}}" for field, wide in zip(fields[:-1], columns, strict=False)]
    return [*padded, *fields[len(padded) :]]


def _joined(fields: Sequence[str]) -> list[str]:
    """Fields in lines of at most 80 columns, broken between them."""
    lines = [f"  {fields[0]}"]
    for field in fields[1:]:
        if len(lines[-1]) + 2 + len(field) <= _WIDTH:
            lines[-1] += f"  {field}"
        else:
            lines.append(f"      {field}")
    return lines


def _wrapped(text: str, indent: int = 0) -> list[str]:
    """Text in lines of at most 80 columns; a path that is cut in two could not be copied."""
    first, others = " " * indent, " " * (indent + 2)
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )


def _printable(text: str) -> str:
    """Control characters, in a test's id say, would act on the terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _problems(root: Path, file: _File, max_age_days: float) -> list[str]:
    baseline = file.baseline
    if baseline is None:
        return [file.error or "unusable"]
    found = age_warnings(baseline, now=datetime.now(UTC), max_age_days=max_age_days)
    if few := few_launches(baseline.launches):
        found.append(few)
    if file.version < SCHEMA_VERSION:
        found.append(
            f"The file is of schema version {file.version}, without the digest that shows an edit: rewrite it with "
            "--migrate."
        )
    proper = baseline_path(root, baseline.identity, baseline.test)
    if proper != file.path:
        found.append(f"The file lies where no run looks for it; its place is {proper.relative_to(root)}.")
    return found
