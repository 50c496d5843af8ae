"""``python -m pytest_llmperf baselines``: what is stored, what is wrong with it, and what mends it in one go."""

from __future__ import annotations

import argparse
import fnmatch
import sys
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
    for file in files:
        print(_line(root, file))
        if file.note is not None:
            print(f"  note: {file.note}")
        for problem in problems[file.path]:
            print(f"  problem: {problem}")
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


def _line(root: Path, file: _File) -> str:
    if file.baseline is None:
        return str(file.path)
    baseline = file.baseline
    engine = f"{baseline.provenance.get('engine', 'engine')} {baseline.provenance.get('engine_version') or 'unknown'}"
    launches = f"{baseline.launches} launch{'es' if baseline.launches != 1 else ''}"
    anchor = "its own anchor" if baseline.anchor is None else f"anchor of {baseline.anchor.saved_at[:10]}"
    group = "/".join(file.path.relative_to(root).parts[:2])
    return "  ".join((_printable(baseline.test), group, launches, baseline.saved_at[:10], _printable(engine), anchor))


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
