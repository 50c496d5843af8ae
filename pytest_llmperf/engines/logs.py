"""What an engine's processes print: kept in a file, and searched for the root cause of a failure.

vLLM's workers are processes of their own that print to file descriptors 1 and 2, which they inherit when they
start. Whoever started them sees only "see above". So the descriptors are turned to a file while an engine
starts; the workers keep that file for life, ours are turned back.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

__all__ = ["EngineLog", "last_lines", "likely_cause", "root_cause", "validation_cause"]

#: What vLLM's processes put before a line.
_PREFIX = r"(?:\([^()]*\) )*(?:(?:ERROR|CRITICAL) \S+ \S+ \[[^\]]*\] )?"
#: An exception's closing line, as a process prints it, with or without vLLM's own prefix.
_EXCEPTION = re.compile(
    rf"^{_PREFIX}(?P<kind>(?:[A-Za-z_]\w*\.)*(?:Exception|[A-Z]\w*(?:Error|Exception|Exit|Interrupt)))"
    r": (?P<message>\S.*)$"
)
#: How a program closes that does not understand its command line.
_USAGE = re.compile(r"^\S+: error: (?P<message>\S.*)$")
#: Messages that only point at another one.
_POINTERS = re.compile(
    r"see (?:the )?(?:stack trace|root cause|above)|stack trace above|core initialization failed", re.IGNORECASE
)

#: How the message of pydantic's ValidationError begins, and how many lines after that are looked at.
_VALIDATION = re.compile(r"\d+ validation errors? for ")
_VALIDATION_LINES = 6

#: What no measured part of a run should contain, as vLLM words it.
_DISTURBANCE = re.compile(
    r"JIT compil|during inference|torch\.compile takes|Compiling a graph|Captur\w+ (?:CUDA|cuda) ?graph|"
    r"Graph capturing|[Aa]utotun|Dynamo bytecode",
)


class EngineLog:
    """A file that takes what an engine's processes print.

    Args:
        path: The file; its folder is created. ``None``: a temporary file, removed on close.
    """

    def __init__(self, path: str | None) -> None:
        self._temporary = path is None
        if path is None:
            descriptor, path = tempfile.mkstemp(prefix="llmperf-engine-", suffix=".log")
            os.close(descriptor)
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.stream = self.path.open("a", encoding="utf-8", errors="replace", buffering=1)
        self._begin = self._read_to = self.path.stat().st_size

    @contextmanager
    def taking_over(self) -> Iterator[None]:
        """Turn descriptors 1 and 2 and Python's streams to the file; processes started meanwhile keep it."""
        sys.stdout.flush()
        sys.stderr.flush()
        saved = [os.dup(1), os.dup(2)]
        os.dup2(self.stream.fileno(), 1)
        os.dup2(self.stream.fileno(), 2)
        try:
            with redirect_stdout(self.stream), redirect_stderr(self.stream):
                yield
        finally:
            self.stream.flush()
            for descriptor, copy in enumerate(saved, 1):
                os.dup2(copy, descriptor)
                os.close(copy)

    def text(self) -> str:
        """All that was printed since the log was opened; an earlier engine's errors are not this one's."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._begin)
                return file.read().decode(errors="replace")
        except FileNotFoundError:  # somebody has cleared the folder, or it was temporary
            return ""

    def whereabouts(self) -> str | None:
        """A sentence that says where to read on; ``None`` for a temporary file, which will be gone by then."""
        return None if self._temporary else f"The engine's own output is in {self.path}."

    def skip(self) -> None:
        """Leave what was printed so far out of the next :meth:`disturbances`."""
        self._read_to = self.path.stat().st_size

    def disturbances(self) -> list[str]:
        """The lines printed since the last call that tell of compiling, capturing or tuning."""
        with self.path.open("rb") as file:
            file.seek(self._read_to)
            fresh = file.read()
        # A line still being written is left for the next call.
        complete = fresh.rfind(b"\n") + 1
        self._read_to += complete
        lines = fresh[:complete].decode(errors="replace").splitlines()
        return [line.strip() for line in lines if _DISTURBANCE.search(line)]

    def close(self) -> None:
        """Close the file, and remove it if it was temporary."""
        self.stream.close()
        if self._temporary:
            self.path.unlink(missing_ok=True)


def root_cause(text: str) -> str | None:
    """The first exception in a log that does not merely point at another: ``"ValueError: ..."``, or ``None``.

    Of an error in a configuration it is the sentence that says what is wrong; where there is no exception, it is what a
    program said about its command line.
    """
    lines = [line.strip() for line in text.splitlines()]
    for number, line in enumerate(lines):
        found = _EXCEPTION.match(line)
        if found and not _POINTERS.search(found["message"]):
            message = "\n".join([found["message"], *lines[number + 1 : number + 1 + _VALIDATION_LINES]])
            return validation_cause(message) or f"{found['kind'].rpartition('.')[2]}: {found['message'].strip()}"
    said = [found["message"] for line in lines if (found := _USAGE.match(line))]
    return said[-1] if said else None


def validation_cause(message: str) -> str | None:
    """The sentence that matters in the message of pydantic's ValidationError; ``None`` when it is of another kind.

    pydantic spreads it over lines: how many errors, then the field's name, what is wrong with it, and a link.
    """
    lines = [re.sub(f"^{_PREFIX}", "", line.strip()).strip() for line in message.splitlines() if line.strip()]
    if len(lines) < 2 or not _VALIDATION.match(lines[0]):
        return None
    for line in lines:
        if line.startswith(("Value error, ", "Assertion failed, ")):
            return line.partition(", ")[2].split(" [type=")[0]
    if len(lines) < 3:
        return None
    given = re.search(r"input_value=(.*?), input_type", lines[2])
    return f"{lines[1]}: {lines[2].split(' [type=')[0]} (given: {given[1] if given else '?'})"


def likely_cause(text: str) -> str | None:
    """Why an engine failed as far as its log tells: a root cause, else what was printed last, else ``None``."""
    if cause := root_cause(text):
        return cause
    if _POINTERS.search(text):
        return "a process of the engine ended without an error message (killed?)"
    return last_lines(text)


def last_lines(text: str, count: int = 3) -> str | None:
    """The last lines of a log that are not blank, joined to one; ``None`` when there are none."""
    lines = [line.strip()[:200] for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-count:]) or None
