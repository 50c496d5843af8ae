"""From the content of an old file to that of the present version, one step a version, in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_llmperf.baselines.model import SCHEMA_VERSION

__all__ = ["MIGRATIONS", "migrated"]

Content = dict[str, Any]


def _from_1(content: Content) -> Content:
    """Version 2 has anchors; its digest belongs to the file and not to the content, its rounding to the model."""
    return {**content, "schema_version": 2, "anchor": None}


#: By the version that a step starts from; it ends at the next one.
MIGRATIONS: Mapping[int, Callable[[Content], Content]] = {1: _from_1}


def migrated(content: Content) -> Content:
    """The same baseline in the present version; ``schema_version`` is one that there is."""
    while content["schema_version"] < SCHEMA_VERSION:
        content = MIGRATIONS[content["schema_version"]](content)
    return content
