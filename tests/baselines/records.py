"""A baseline made by hand, and ways to write it to a file as nobody should."""

import json
from pathlib import Path

from pytest_llmperf.baselines import Baseline, Identity, MetricRecord, digest_of

IDENTITY = Identity(
    hardware="NVIDIA H200",
    device_count=1,
    power_limit_w=700.0,
    simulated=False,
    clock_mhz=None,
    model="mistral-7b",
    model_digest="0123456789ab",
    dtype="bfloat16",
    quantization=None,
    kv_cache_dtype="auto",
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    workload="932fc667e491aeaf",
)
TEST = "suites/test_phases.py::test_decode[8]"


def changed(**changes):
    return IDENTITY.model_copy(update=changes)


def record(*launches, **changes):
    fields = {"unit": "s", "better": "lower", "launches": launches or ((1.0, 1.1), (1.2,)), "value": 1.1}
    return MetricRecord(**fields | changes)


def baseline(**metrics):
    return Baseline(
        test=TEST,
        saved_at="2026-01-02T03:04:05+00:00",
        identity=IDENTITY,
        workload={"batch": 1},
        provenance={"engine": "vllm"},
        metrics=metrics or {"tpot": record()},
    )


def written(path: Path, change, digest=True) -> Path:
    """A file whose content was changed before its digest was taken, or with ``digest=False`` after."""
    content = json.loads(baseline().model_dump_json())
    if not digest:
        content["digest"] = digest_of(content)
    change(content)
    if digest:
        content["digest"] = digest_of(content)
    path.write_text(json.dumps(content))
    return path


def written_as_1(path: Path, change=lambda content: None) -> Path:
    """A file of schema version 1."""
    content = json.loads(baseline().model_dump_json(exclude={"anchor"})) | {"schema_version": 1}
    change(content)
    path.write_text(json.dumps(content))
    return path
