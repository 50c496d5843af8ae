"""Reading a model's ``config.json`` with suspicion: every value is checked where it is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pytest_llmperf.errors import ArchitectureError

# The language model of a multimodal config sits one level down, under one of these keys.
_NESTED_KEYS = ("text_config", "llm_config", "language_config")

# Real configs are kilobytes; quantised ones that list every module reach some hundred. What is far beyond
# is a weight file or junk, and is refused before it is read into memory.
_MAX_FILE_BYTES = 32 * 2**20

# No model comes near these, and a number beyond them would only make the arithmetic slow before it is wrong.
_MAX_COUNT = 10**9
_MAX_LAYERS = 10_000


@dataclass(frozen=True, slots=True)
class Config:
    """One level of a model's configuration, and where it came from.

    Args:
        values: The keys and values of this level.
        source: What a message calls it: the file's path, or ``the config`` for a mapping.
        path: Dotted path of this level inside the file, empty at the top.
        defaults: What the family's configuration class assumes when a key is absent.
        nested: Whether this is the language model inside a multimodal config. Those are stored as differences
            from the family's defaults, so there every absent key takes its default; at the top level the keys
            that give a model its size must be present.
    """

    values: Mapping[str, Any]
    source: str
    path: str = ""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    nested: bool = False

    def where(self, key: str) -> str:
        """A key's dotted path and its file, for messages."""
        return f"`{self.path}{key}` in {self.source}"

    def fail(self, key: str, problem: str, remedy: str | None = None) -> NoReturn:
        """Raise an error about a key's value."""
        raise ArchitectureError(f"{self.where(key)} {problem}.", remedy=remedy)

    def get(self, key: str) -> Any:
        """The value of a key; an absent key and ``null`` are the same, as in the configuration classes."""
        return self.values.get(key)

    def count(self, key: str, default: int | None = None, *, least: int = 1, most: int = _MAX_COUNT) -> int:
        """A whole number.

        Args:
            key: Its key.
            default: What an absent key means. Without one the key must be present, except in a nested config
                whose family has a default.
            least: The smallest that makes sense.
            most: The largest that makes sense.

        Raises:
            ArchitectureError: The key is missing, or its value is no such number.
        """
        value = self.get(key)
        if value is None:
            value = default if default is not None else self.defaults.get(key) if self.nested else None
        if value is None:
            self.fail(key, "is missing", "Add it: the model's size cannot be computed without it.")
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(key, f"must be a whole number, not {brief(value)}", "Write it as a plain JSON number.")
        if not least <= value <= most:
            self.fail(key, f"must be between {least} and {most}, not {brief(value)}")
        return value

    def optional_count(self, key: str, *, least: int = 1) -> int | None:
        """A whole number, or ``None`` when the key is absent or ``null``."""
        return None if self.get(key) is None else self.count(key, least=least)

    def layers(self, key: str = "num_hidden_layers") -> int:
        """The number of layers."""
        return self.count(key, most=_MAX_LAYERS)

    def flag(self, key: str, default: bool) -> bool:
        """``true`` or ``false``."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, f"must be true or false, not {brief(value)}")
        return value

    def text(self, key: str) -> str | None:
        """A string, or ``None`` when the key is absent."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            self.fail(key, f"must be a string, not {brief(value)}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings, empty when the key is absent."""
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            self.fail(key, f"must be a list of strings, not {brief(value)}")
        return tuple(value)

    def counts(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers from 0, or ``None`` when the key is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or not all(
            isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= _MAX_COUNT for item in value
        ):
            self.fail(key, f"must be a list of whole numbers, not {brief(value)}")
        return tuple(value)

    def section(self, key: str) -> Config | None:
        """A mapping one level down, or ``None`` when the key is absent."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            self.fail(key, f"must be a mapping, not {brief(value)}")
        return Config(value, self.source, f"{self.path}{key}.")


def brief(value: object) -> str:
    """A value as a message can bear it: never longer than a few words, however large the value is."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**18:
        return "a number of more than 18 digits"
    if isinstance(value, str | bytes):
        shown = repr(value[:40])
        return shown if len(value) <= 40 else f"{shown}... ({len(value)} characters)"
    if value is None or isinstance(value, int | float):
        return json.dumps(value)
    return f"a {type(value).__name__}"


def read_config(origin: str | Path | Mapping[str, Any]) -> Config:
    """Read a config from a folder, a file or a mapping.

    Args:
        origin: A folder that holds a ``config.json``, such a file, or its content.

    Raises:
        ArchitectureError: There is no such file, it is too large, or it does not hold a JSON object.
    """
    if isinstance(origin, Mapping):
        return Config(origin, "the config")
    if not isinstance(origin, str | Path):
        raise ArchitectureError(
            f"A model's config cannot be read from {brief(origin)}.",
            remedy="Give a folder with a config.json, the file itself, or its content as a mapping.",
        )
    path = Path(origin)
    try:
        path = path / "config.json" if path.is_dir() else path
        if not path.is_file():
            raise ArchitectureError(
                f"There is no config.json at {path}.",
                remedy="Give a folder with a config.json, or the file itself.",
            )
        size = path.stat().st_size
        if size > _MAX_FILE_BYTES:
            raise ArchitectureError(
                f"{path} has {size} bytes: that is no config.json.", remedy="Give the model's config.json."
            )
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null byte
        raise ArchitectureError(f"{brief(str(path))} cannot be read: {error}.") from error
    try:
        values = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ArchitectureError(
            f"{path} is not JSON: {str(error)[:200]}.", remedy="Download the model's config.json again."
        ) from error
    if not isinstance(values, dict):
        raise ArchitectureError(
            f"{path} must hold a JSON object, not {brief(values)}.", remedy="Give the model's config.json."
        )
    return Config(values, str(path))


def language_model(config: Config) -> Config:
    """The part of a config that describes the language model: of a multimodal one, its nested text config."""
    for key in _NESTED_KEYS:
        inner = config.section(key)
        if inner is not None:
            return Config(inner.values, inner.source, inner.path, nested=True)
    return config
