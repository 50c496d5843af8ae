"""Stored baselines: what identifies one, where it lies, how it is read and written, and what keeps it trustworthy.

A baseline is one small JSON file a test, made to be reviewed like code. What it was measured on and with is its
identity; a run with another identity is not compared with it but told which field differs. The engine's version
and the arguments under test are recorded beside it and never part of the identity: they are what is compared.
"""

from __future__ import annotations

from pytest_llmperf.baselines.identity import Identity, differing, same_but_for_workload
from pytest_llmperf.baselines.model import (
    SCHEMA_VERSION,
    Anchor,
    Baseline,
    BoardRecord,
    MetricRecord,
    as_records,
)
from pytest_llmperf.baselines.paths import baseline_path, find_elsewhere, group_folder, slug, within_group
from pytest_llmperf.baselines.storage import DIGESTED_SINCE, digest_of, load, of_group, read, read_all, store
from pytest_llmperf.baselines.succession import keeping_anchor, keeping_boards, pinned
from pytest_llmperf.baselines.upkeep import (
    ENOUGH_LAUNCHES,
    age_warnings,
    beyond_budget,
    few_launches,
    of_another_test,
    undigested,
)

__all__ = [
    "DIGESTED_SINCE",
    "ENOUGH_LAUNCHES",
    "SCHEMA_VERSION",
    "Anchor",
    "Baseline",
    "BoardRecord",
    "Identity",
    "MetricRecord",
    "age_warnings",
    "as_records",
    "baseline_path",
    "beyond_budget",
    "differing",
    "digest_of",
    "few_launches",
    "find_elsewhere",
    "group_folder",
    "keeping_anchor",
    "keeping_boards",
    "load",
    "of_another_test",
    "of_group",
    "pinned",
    "read",
    "read_all",
    "same_but_for_workload",
    "slug",
    "store",
    "undigested",
    "within_group",
]
