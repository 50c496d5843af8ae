"""Stored baselines: what identifies one, where it lies, and how it is read and written.

A baseline is one small JSON file a test, made to be reviewed like code. What it was measured on and with is its
identity; a run with another identity is not compared with it but told which field differs. The engine's version
and the arguments under test are recorded beside it and never part of the identity: they are what is compared.

Speed compares on every board of a product. Energy does not: two boards of one product were seen 8 to 12 % apart at the
same work. So a baseline keeps energy board by board, by UUID, and one that does not know a board says nothing of it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_llmperf.errors import BaselineError
from pytest_llmperf.files import write_atomically
from pytest_llmperf.fingerprint.record import OutputsRecord
from pytest_llmperf.metrics import REGISTRY, Summary

__all__ = [
    "Baseline",
    "BoardRecord",
    "Identity",
    "MetricRecord",
    "as_records",
    "baseline_path",
    "differing",
    "find_elsewhere",
    "keeping_boards",
    "load",
    "slug",
    "store",
]

SCHEMA_VERSION = 1
_RESERVED = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}
_LONGEST_NAME = 200
#: A name that ends like this could be another name's slug.
_DIGESTED = re.compile(r"-[0-9a-f]{8}$")

Measured = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Identity(_Strict):
    """What a baseline holds for; two equal identities are comparable.

    Attributes:
        hardware: Product name of the GPU, or of the CPU with its number of usable cores.
        device_count: GPUs in use (1 for a CPU).
        power_limit_w: Per GPU; ``None`` for a CPU.
        simulated: Made up or measured.
        clock_mhz: The locked SM clock; ``None`` when it was not locked.
        memory_clock_mhz: The locked memory clock; likewise.
        model: The model's name.
        model_digest: Of its config.
        dtype: Of the computation.
        quantization: Of the weights.
        kv_cache_dtype: Of the KV cache.
        tensor_parallel_size: GPUs a layer is split over.
        pipeline_parallel_size: GPUs the layers are spread over.
        workload: Digest of the workload.
    """

    hardware: str
    device_count: int = Field(ge=1)
    power_limit_w: float | None
    simulated: bool
    clock_mhz: int | None
    memory_clock_mhz: int | None = None
    model: str
    model_digest: str | None
    dtype: str
    quantization: str | None
    kv_cache_dtype: str
    tensor_parallel_size: int = Field(ge=1)
    pipeline_parallel_size: int = Field(ge=1)
    workload: str


class MetricRecord(_Strict):
    """One metric as stored: the raw repeats by launch, or the reason why there are none."""

    unit: str
    better: Literal["lower", "higher"]
    launches: tuple[tuple[Measured, ...], ...] = Field(strict=False)
    value: Measured | None
    reason: str | None = None

    def summary(self) -> Summary:
        """The form that the gate compares."""
        return Summary(self.value, self.launches, None, self.reason)


class BoardRecord(_Strict):
    """What holds for certain boards only."""

    saved_at: str
    metrics: dict[str, MetricRecord]


class Baseline(_Strict):
    """One stored file.

    Attributes:
        metrics: What compares on every board of the same product.
        boards: What compares on the same boards only, by their UUIDs (several are joined by ``+``).
        outputs: What the engine answered to fixed prompts; ``None`` when it was not asked, or did not tell.
    """

    schema_version: Literal[1]
    test: str
    saved_at: str
    identity: Identity
    workload: dict[str, Any]
    provenance: dict[str, Any]
    metrics: dict[str, MetricRecord]
    boards: dict[str, BoardRecord] = {}
    outputs: OutputsRecord | None = None

    def summaries(self, boards: str | None) -> dict[str, Summary]:
        """What a run on these boards is compared with."""
        known = self.boards.get(boards) if boards is not None else None
        return {**_summaries(self.metrics), **(_bound(known.metrics) if known is not None else {})}

    def of_other_boards(self, boards: str | None) -> tuple[str, dict[str, Summary]] | None:
        """The boards that were measured last, if they are others, and what was measured on them."""
        if not self.boards or boards in self.boards:
            return None
        other, record = max(self.boards.items(), key=lambda entry: entry[1].saved_at)
        return other, _bound(record.metrics)


def _summaries(records: Mapping[str, MetricRecord]) -> dict[str, Summary]:
    return {name: record.summary() for name, record in records.items()}


def _bound(records: Mapping[str, MetricRecord]) -> dict[str, Summary]:
    """Of what is kept for certain boards, what belongs there: nothing else may take the place of a portable figure."""
    known = (name for name in records if name in REGISTRY and REGISTRY[name].bound_to_board)
    return _summaries({name: records[name] for name in known})


def slug(text: str) -> str:
    """A file name that is safe everywhere and differs whenever ``text`` does, also where case is ignored."""
    plain = re.sub(r"[^a-z0-9_.\[\]=+-]+", "-", text.lower()).strip("-.") or "x"
    if plain.partition(".")[0] in _RESERVED:  # with any ending: Windows takes con.json for the console as well
        plain = f"x-{plain}"
    if plain == text and len(plain) <= _LONGEST_NAME and not _DIGESTED.search(plain):
        return plain
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{plain[:_LONGEST_NAME].rstrip('-.')}-{digest}"


def _readable(text: str) -> str:
    """A folder name for hardware and models; not unique by itself, the identity inside the file is."""
    return re.sub(r"[^a-z0-9_.+-]+", "-", text.lower()).strip("-.")[:100] or "x"


def baseline_path(root: Path, identity: Identity, test: str) -> Path:
    """Where a test's baseline lies: ``<root>/<hardware>/<model>@<clock>/<suite>/<test>.json``.

    The clock is that of the SMs, and that of the memory where it was locked.

    Args:
        root: The folder of all baselines.
        identity: What the baseline holds for.
        test: The test's id, such as ``suites/test_x.py::test_y[1]``.
    """
    hardware = _readable(identity.hardware)
    if identity.simulated:
        hardware = f"simulated-{hardware}"
    if identity.device_count > 1:
        hardware += f"-x{identity.device_count}"
    clock = "unlocked" if identity.clock_mhz is None else f"{identity.clock_mhz}mhz"
    if identity.memory_clock_mhz is not None:
        clock += f"-memory{identity.memory_clock_mhz}mhz"
    return root / hardware / f"{_readable(identity.model)}@{clock}" / _within_suite(test)


def _within_suite(test: str) -> Path:
    file, _, name = test.partition("::")
    # Not Path.suffix: a test file of another kind keeps its ending, so that x.py and x.txt stay apart.
    suite = [slug(part) for part in file.removesuffix(".py").split("/") if part not in ("", ".")]
    return Path(*suite, f"{slug(name)}.json")


def load(path: Path) -> Baseline | None:
    """Read a baseline; ``None`` when there is no such file.

    Raises:
        BaselineError: it cannot be read, or holds what no baseline may hold (NaN, negative numbers, text).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineError(f"The baseline {path} cannot be read ({error}).") from None
    try:
        return Baseline.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BaselineError(
            f"The baseline {path} is unusable: {where}: {first['msg']}.",
            remedy="Restore it from version control, or store a new one with --llmperf-save.",
        ) from None


def store(path: Path, baseline: Baseline) -> None:
    """Write a baseline so that a reader sees the old file or the new one, never a part.

    Raises:
        BaselineError: the folder cannot be written.
    """
    text = json.dumps(baseline.model_dump(mode="json"), indent=1, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        write_atomically(path, text)
    except OSError as error:
        raise BaselineError(
            f"The baseline {path} cannot be written ({error}).",
            remedy="Make the folder writable, or give another with --llmperf-baselines.",
        ) from None


def keeping_boards(before: Baseline | None, now: Baseline) -> Baseline:
    """A baseline that is about to replace another, with what that one knows of other boards."""
    if before is None or before.identity != now.identity:
        return now
    return now.model_copy(update={"boards": {**before.boards, **now.boards}})


def differing(baseline: Identity, current: Identity) -> list[str]:
    """The fields in which two identities differ, as sentences: ``"hardware: NVIDIA H100 in the baseline, ..."``."""
    return [
        f"{name}: {before!r} in the baseline, {now!r} now"
        for name in Identity.model_fields
        if (before := getattr(baseline, name)) != (now := getattr(current, name))
    ]


def find_elsewhere(root: Path, test: str) -> list[Path]:
    """The baselines of the same test for other hardware, models or clocks, nearest names first."""
    inside = _within_suite(test)
    if not root.is_dir():
        return []
    return sorted(p / inside for p in root.glob("*/*") if (p / inside).is_file())


def as_records(metrics: Mapping[str, Any], summaries: Mapping[str, Summary]) -> dict[str, MetricRecord]:
    """Summaries in the form that is stored; ``metrics`` is the registry."""
    return {
        name: MetricRecord(
            unit=metrics[name].unit,
            better=metrics[name].better,
            launches=summary.launches,
            value=summary.value,
            reason=summary.reason,
        )
        for name, summary in summaries.items()
    }
