"""Markdown as GitHub reads it, such that a test's id or a server's message is text and nothing else.

A name can hold anything: HTML, the pipes of a table, links, images, mentions that send a mail to a whole team. Plain
names become code, in which nothing acts; of everything else each character with a meaning becomes an entity. Mentions,
issue numbers and addresses are looked for in the rendered text, where an entity is a character again: there a
zero-width space follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_llmperf.report.units import printable

__all__ = ["code", "fence", "keep_within", "table", "text"]

#: Of names like these nothing could act, even where code is not recognised.
_PLAIN = re.compile(r"[\w .,:;=+/\[\](){}'-]+")
_LINK = re.compile(r"\]\s*\(|://|www\.|\]\s*:", re.IGNORECASE)
_ENTITIES = {c: f"&#{ord(c)};" for c in "&<>\\`*_[]|~$"} | {c: f"&#{ord(c)};&#8203;" for c in "@#"}


def text(value: str, longest: int = 400) -> str:
    """Text on one line without any markup; at most ``longest`` characters of Markdown and an ellipsis."""
    line = " ".join(printable(" ".join(str(value).split())).split())
    line = re.sub(r"(?i)www\.", lambda found: found.group()[:3] + "\0", line)
    parts: list[str] = []
    length = 0
    for at, c in enumerate(line):
        if c == "\0":
            part = "&#8203;."
        elif c == ":" and line.startswith("//", at + 1):
            part = ":&#8203;"
        else:
            part = _ENTITIES.get(c, c)
        length += len(part)
        if length > longest:
            return "".join(parts) + "…"
        parts.append(part)
    return "".join(parts)


def code(value: str, longest: int = 160) -> str:
    """A name in code; of a very long one the end, where tests of one file differ."""
    name = " ".join(printable(" ".join(str(value).split())).split())
    if len(name) > longest:
        name = "…" + name[-longest:]
    if _PLAIN.fullmatch(name.lstrip("…")) and not _LINK.search(name):
        return f"`{name}`"
    return f"<code>{text(name, 4 * longest)}</code>" if name else "<code></code>"


def fence(value: str) -> list[str]:
    """Lines to be copied, verbatim."""
    longest = max((len(run) for run in re.findall("`+", value)), default=0)
    ticks = "`" * max(3, longest + 1)
    return [f"{ticks}sh", *(printable(line) for line in value.splitlines()), ticks]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: int) -> list[str]:
    """A table whose cells are Markdown already.

    Args:
        head: The headings.
        rows: As many cells each.
        numbers: So many columns, the last ones, are aligned to the right.
    """
    rule = ["---"] * (len(head) - numbers) + ["---:"] * numbers
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)]


def keep_within(lines: Sequence[str], room: int) -> tuple[list[str], int]:
    """As many lines, from the first on, as fit into ``room`` characters with their ends, and how many are left out."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        kept.append(line)
    return kept, len(lines) - len(kept)
