"""Which model a server serves, and what is known of it here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_llmperf.engines.openai.address import Secrets
from pytest_llmperf.errors import LlmperfError, OptionError
from pytest_llmperf.models import Model, config_digest, resolve

__all__ = ["ServedModel", "find_model", "presentable"]

#: The longest name that records and paths take from a server.
_LONGEST_NAME = 200
#: So many of its models a message lists.
_LISTED = 20
_NO_SECRETS = Secrets()
_CHOOSE = "Choose one with --llmperf-model NAME."
_NAME_IT = "Name it with --llmperf-model NAME."


@dataclass(frozen=True)
class ServedModel:
    """The model that requests name.

    Attributes:
        id: As the server calls it, to the letter; for requests only.
        config: Its config.json, where it is known here.
        max_model_len: As the server tells it.
        name: As records and baselines call it; presentable.
        maker: Who made the server (``owned_by``), such as ``"vllm"``; presentable.
        tokenizer: A tokenizer.json of it, where there is one here.
        warnings: What a reader should know of the choice, in sentences.
    """

    id: str = field(repr=False)
    config: Mapping[str, Any] | None
    max_model_len: int | None
    name: str = ""
    maker: str = ""
    tokenizer: str | None = None
    warnings: tuple[str, ...] = ()


def presentable(name: str, secrets: Secrets) -> str:
    """A name that a server gives itself, such that terminals, files and paths can hold it.

    Secrets are hidden, what is not printable (control characters, lone surrogates) is escaped, and a long name is cut;
    a digest in place of the rest keeps two long names apart.
    """
    hidden = secrets.hide(name)
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in hidden[: _LONGEST_NAME + 1]
    )
    if len(escaped) <= _LONGEST_NAME:
        return escaped
    digest = hashlib.sha256(hidden.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{escaped[: _LONGEST_NAME - len(digest) - 1]}…{digest}"


def find_model(
    listing: Any, asked: Model, *, on_this_machine: bool = True, secrets: Secrets = _NO_SECRETS
) -> ServedModel:
    """Match what the server lists with what was asked for.

    Args:
        listing: Answer to ``/v1/models``, or ``None`` when there was none.
        asked: The model of ``--llmperf-model`` or the marker; with an empty name when nobody said.
        on_this_machine: Whether a folder that the server names is a folder here.
        secrets: What no name may tell.

    Raises:
        OptionError: the model that was asked for is not among several that are served.
    """
    entries = _entries(listing)
    if not entries:
        warnings = () if asked.name else (f"The server lists no model, so none was named to it. {_NAME_IT}",)
        name = asked.name or "unknown"
        return ServedModel(asked.location, asked.config, None, name, tokenizer=_tokenizer(asked), warnings=warnings)
    warnings = ()
    if not asked.name:
        chosen = entries[0]
        different = {entry["id"]: entry for entry in entries}
        if len(different) > 1:
            warnings = (
                f"The server serves {len(different)} models, of which {presentable(chosen['id'], secrets)} was "
                f"measured: {_listed([*different.values()], secrets)}. {_CHOOSE}",
            )
    else:
        own = (asked.name, asked.location)
        chosen = next((e for e in entries if e["id"] in own or e.get("root") in own), {})
        if not chosen and asked.config is not None and len(entries) == 1:
            chosen = entries[0]  # a folder or shape that says what the one model there is
        if not chosen:
            raise OptionError(
                f"The server does not serve {asked.name}.", remedy=f"It serves: {_listed(entries, secrets)}."
            )
    here = _lying_here(chosen) if on_this_machine else None
    known = here if asked.config is None else asked
    if asked.config is not None and here is not None and not _same(here, asked):
        raise OptionError(
            f"The server serves {here.name}, and --llmperf-model says {asked.name}: their configs differ.",
            remedy="Leave --llmperf-model out, or name the folder of the model that is served.",
        )
    longest, maker = chosen.get("max_model_len"), chosen.get("owned_by")
    return ServedModel(
        id=chosen["id"],
        config=None if known is None else known.config,
        max_model_len=longest if type(longest) is int and longest > 0 else None,
        name=asked.name or presentable(known.name if known is not None else chosen["id"], secrets),
        maker=presentable(maker, secrets) if isinstance(maker, str) else "",
        tokenizer=None if known is None else _tokenizer(known),
        warnings=warnings,
    )


def _same(one: Model, other: Model) -> bool:
    return config_digest(one.config or {}) == config_digest(other.config or {})


def _listed(entries: Sequence[Mapping[str, Any]], secrets: Secrets) -> str:
    names = [presentable(entry["id"], secrets) for entry in entries[:_LISTED]]
    return ", ".join(names) + (f" and {len(entries) - _LISTED} more" if len(entries) > _LISTED else "")


def _entries(listing: Any) -> list[dict[str, Any]]:
    data = listing.get("data") if isinstance(listing, dict) else None
    found = data if isinstance(data, list) else []
    return [entry for entry in found if isinstance(entry, dict) and isinstance(entry.get("id"), str)]


def _lying_here(entry: Mapping[str, Any]) -> Model | None:
    """The model's folder, when the server runs on this machine and names it."""
    for place in (entry.get("root"), entry["id"]):
        if isinstance(place, str) and Path(place).is_absolute():
            try:
                return resolve(place)
            except (LlmperfError, OSError, ValueError):  # not ours to read, or no path at all
                continue
    return None


def _tokenizer(model: Model) -> str | None:
    path = Path(model.location) / "tokenizer.json"
    return str(path) if model.location and path.is_file() else None
