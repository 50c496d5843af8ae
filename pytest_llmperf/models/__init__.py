"""Model names, and shapes to run with dummy weights.

A shape is a bare config.json: layers and widths without weights. Speed does not depend on the values of the
weights, so a shape is all that a performance test needs.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmperf.errors import OptionError

__all__ = ["Model", "config_digest", "resolve", "shape_folder", "shapes", "special_tokens"]

_HERE = Path(__file__).parent
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
_TOKENIZER = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")


@dataclass(frozen=True)
class Model:
    """A model by name, and where it lies.

    Attributes:
        name: How records and baselines call it: a hub id, a folder's last component, or a shape's name.
        location: What an engine is given: a hub id or a folder.
        config: The parsed config.json of a folder; ``None`` for a hub id, which only an engine can look up.
        has_weights: Whether the folder holds weights; without them an engine runs on dummy weights.
        has_tokenizer: Whether the folder holds a tokenizer.
    """

    name: str
    location: str
    config: dict[str, Any] | None
    has_weights: bool
    has_tokenizer: bool


def shapes() -> list[str]:
    """The names of the shipped shapes, sorted."""
    return sorted(path.parent.name for path in _HERE.glob("*/config.json"))


def shape_folder(name: str) -> str | None:
    """The folder of a shipped shape; ``None`` when there is none of that name."""
    return str(_HERE / name) if name in shapes() else None


def resolve(name: str) -> Model:
    """Find the model that ``name`` means: a shipped shape, a folder with a config.json, or a hub id.

    Raises:
        OptionError: it is none of the three, or the folder's config.json is missing or unreadable.
    """
    if name in shapes():
        return _folder(name, _HERE / name)
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _folder(folder.resolve().name, folder.resolve())
    if _HUB_ID.fullmatch(name):
        return Model(name, name, config=None, has_weights=True, has_tokenizer=True)
    raise OptionError(
        f"The model {name!r} is no folder, no Hugging Face id and no shipped shape.",
        remedy=f"Give a folder with a config.json, an id like org/name, or one of: {', '.join(shapes())}.",
    )


def config_digest(config: Mapping[str, Any]) -> str:
    """12 hex digits of a config's content: the same model under another path keeps its identity."""
    text = json.dumps(config, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def special_tokens(config: Mapping[str, Any]) -> frozenset[int]:
    """Token ids that a config names for a purpose (begin, end, padding, image, ...): no prompt of text holds them."""
    return frozenset(_special_tokens(config))


def _special_tokens(config: Mapping[str, Any]) -> Iterator[int]:
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _special_tokens(value)
        elif key.endswith(("token_id", "token_index", "token_ids")):
            yield from (v for v in (value if isinstance(value, list) else [value]) if isinstance(v, int))


def _folder(name: str, folder: Path) -> Model:
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(
            f"The model folder {folder} has no readable config.json ({error}).",
            remedy="Give the folder that holds the model's config.json.",
        ) from None
    if not isinstance(config, dict):
        raise OptionError(f"{path} holds no JSON object.", remedy="Give a Hugging Face config.json.")
    return Model(
        name=name,
        location=str(folder),
        config=config,
        has_weights=any(any(folder.glob(pattern)) for pattern in _WEIGHTS),
        has_tokenizer=any((folder / file).exists() for file in _TOKENIZER),
    )
