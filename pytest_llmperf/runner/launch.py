"""One launch of one workload: warm up, make sure that it was enough, repeat."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pytest_llmperf.engines import Engine, EngineInfo
from pytest_llmperf.engines.pool import RunningEngine
from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.runner.drive import drive
from pytest_llmperf.runner.plan import Vocabulary, plan
from pytest_llmperf.trace import RepeatTrace
from pytest_llmperf.workload import Workload

__all__ = ["Launch", "measure_launch"]

#: How often a repeat that the engine disturbed by compiling is taken as one more warm-up.
_EXTRA_WARMUPS = 3
#: A first repeat slower than the others by this factor tells of a warm-up that was too short.
_SLOW_START = 1.5


@dataclass(frozen=True)
class Launch:
    """What one launch measured.

    Attributes:
        index: Which launch, from 0.
        info: The engine that ran.
        repeats: The measured repeats; nothing of the warm-up is in them.
        warnings: What a reader should know, in sentences.
        invalid: Why these repeats cannot be trusted, or ``None``.
    """

    index: int
    info: EngineInfo
    repeats: tuple[RepeatTrace, ...]
    warnings: tuple[str, ...] = ()
    invalid: str | None = None


def measure_launch(
    running: RunningEngine,
    workload: Workload,
    *,
    test: str,
    repeats: int,
    read_timeout: float,
    allowed_failures: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> Launch:
    """Measure a workload on an engine that is running.

    Args:
        running: The engine.
        workload: What to send and when.
        test: The test's id; decides the prompts.
        repeats: How often the whole workload is measured.
        read_timeout: Seconds without news after which a request has failed.
        allowed_failures: Failed requests that the launch may have and still be valid.
        progress: Is told what is under way.

    Raises:
        WorkloadError: the model cannot serve the workload's longest request.
        EngineError: the engine died.
    """
    if workload.longest > running.info.max_model_len:
        raise WorkloadError(
            f"The workload's longest request has {workload.longest} tokens and {running.info.model} serves "
            f"{running.info.max_model_len}.",
            remedy="Shorten input_len or output_len, or raise max_model_len in the engine's arguments.",
        )
    work = _measure(running, workload, test, repeats, read_timeout, progress)
    with _no_garbage_collection():
        traces, disturbance, warnings = running.run(work)
    warnings += _slow_start(traces) + _other_prompts(traces)
    invalid = disturbance or _untrustworthy(traces, allowed_failures)
    return Launch(running.launch, running.info, tuple(traces), tuple(warnings), invalid)


async def _measure(
    running: RunningEngine, workload: Workload, test: str, repeats: int, read_timeout: float,
    progress: Callable[[str], None],
) -> tuple[list[RepeatTrace], str | None, list[str]]:  # fmt: skip
    vocabulary = Vocabulary(running.info.vocab_size, running.info.special_tokens)
    engine: Engine = running.engine
    warnings: list[str] = []

    async def once(label: str, number: int) -> RepeatTrace:
        planned = plan(workload, vocabulary, test=test, launch=running.launch, repeat=label)
        return await drive(
            engine, workload, planned, launch=running.launch, repeat=number,
            repeat_id=f"{test}/{running.launch}/{label}", read_timeout=read_timeout,
        )  # fmt: skip

    for number in range(workload.warmup):
        progress(f"warm-up {number + 1}/{workload.warmup}")
        await once(f"warmup-{number}", number)
    engine.disturbances()
    traces: list[RepeatTrace] = []
    extra = 0
    while len(traces) < repeats:
        number = len(traces)
        progress(f"repeat {number + 1}/{repeats}")
        trace = await once(f"{number}" if not extra else f"{number}-after-{extra}", number)
        disturbed = engine.disturbances()
        if not disturbed:
            traces.append(trace)
        elif extra < _EXTRA_WARMUPS:
            extra += 1
            if extra == 1:
                warnings.append(
                    f"The warm-up was too short: the engine still compiled during repeat {number + 1}, which was "
                    f"taken as warm-up and run again ({disturbed[0][-200:]})."
                )
        else:
            traces.append(trace)
            return traces, f"the engine kept compiling while it was measured ({disturbed[0][-200:]})", warnings
    return traces, None, warnings


def _untrustworthy(traces: list[RepeatTrace], allowed_failures: int) -> str | None:
    requests = [r for trace in traces for r in trace.requests]
    failed = [r for r in requests if not r.completed]
    if len(failed) > allowed_failures:
        return f"{len(failed)} of {len(requests)} requests failed, the first with: {failed[0].error}"
    if any(not trace.completed for trace in traces):
        return "in one repeat no request completed"
    for request in requests:
        if request.completed and request.output_tokens != request.asked_output:
            return f"a request asked for {request.asked_output} output tokens and got {request.output_tokens}"
    return None


def _other_prompts(traces: list[RepeatTrace]) -> list[str]:
    differing = [r for t in traces for r in t.completed if r.input_tokens != r.asked_input]
    if not differing:
        return []
    first = differing[0]
    return [
        f"{len(differing)} prompts were counted otherwise than asked for, the first as {first.input_tokens} tokens "
        f"instead of {first.asked_input}; the engine's count is used."
    ]


def _slow_start(traces: list[RepeatTrace]) -> list[str]:
    times = [statistics.median(r.last_ns - r.due_ns for r in t.completed) for t in traces if t.completed]
    if len(times) < 3 or times[0] <= _SLOW_START * statistics.median(times[1:]):
        return []
    return [
        f"The first repeat took {times[0] / statistics.median(times[1:]):.2f} times as long as the others: "
        "the warm-up may have been too short (raise warmup)."
    ]


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep Python's collector from pausing the client in the middle of a measurement."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
