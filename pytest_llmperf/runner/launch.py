"""One launch of one workload: warm up, make sure that it was enough, repeat."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_llmperf.clock import NS_PER_S
from pytest_llmperf.engines import Engine, EngineInfo
from pytest_llmperf.engines.account import Account
from pytest_llmperf.engines.openai.server_metrics import disagreements
from pytest_llmperf.engines.pool import RunningEngine
from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.gpu.sampling.sampler import BoardSamples
from pytest_llmperf.gpu.sampling.watch import Watch
from pytest_llmperf.metrics import UNREAD, LaunchReadings, request_tpot
from pytest_llmperf.runner.drive import drive
from pytest_llmperf.runner.plan import Planned, Vocabulary, plan
from pytest_llmperf.trace import RepeatTrace
from pytest_llmperf.workload import Workload

if TYPE_CHECKING:
    from pytest_llmperf.runner.clock import LaunchClock

__all__ = ["Launch", "joined", "measure_launch"]

#: How often a repeat that the engine disturbed by compiling is taken as one more warm-up.
_EXTRA_WARMUPS = 3
#: A first repeat slower than the others by this factor tells of a warm-up that was too short.
_SLOW_START = 1.5
#: More repeats than this are not made to fill a window.
_MOST_REPEATS = 1000


@dataclass(frozen=True)
class Launch:
    """What one launch measured.

    Attributes:
        index: Which launch, from 0.
        info: The engine that ran.
        repeats: The measured repeats; nothing of the warm-up is in them.
        filling: Repeats that followed because these were too short for the boards' sensors; for their figures alone.
        account: What the engine's own books say of the time in which the repeats ran.
        samples: What was read of the boards while the repeats ran; empty when nobody watched them.
        readings: What that comes to over the window of all repeats.
        clock: What became of the clock that they were to be held at; ``None`` when none was asked for.
        warnings: What a reader should know, in sentences.
        invalid: Why these repeats cannot be trusted, or ``None``.
    """

    index: int
    info: EngineInfo
    repeats: tuple[RepeatTrace, ...]
    filling: tuple[RepeatTrace, ...] = ()
    account: Account = field(default_factory=Account)
    samples: tuple[BoardSamples, ...] = ()
    readings: LaunchReadings = UNREAD
    clock: LaunchClock | None = None
    warnings: tuple[str, ...] = ()
    invalid: str | None = None

    @property
    def watched(self) -> tuple[RepeatTrace, ...]:
        """All repeats during which the boards were read."""
        return (*self.repeats, *self.filling)


def joined(*reasons: str | None) -> str | None:
    """Why something is invalid, of several reasons that there may be."""
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason)) or None


def measure_launch(
    running: RunningEngine,
    workload: Workload,
    *,
    test: str,
    repeats: int,
    read_timeout: float,
    allowed_failures: int | None = 0,
    watch: Watch | None = None,
    fill_s: float = 0.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Launch:
    """Measure a workload on an engine that is running.

    Args:
        running: The engine.
        workload: What to send and when.
        test: The test's id; decides the prompts.
        repeats: How often the whole workload is measured.
        read_timeout: Seconds without news after which a request has failed.
        allowed_failures: Failed requests that the launch may have and still be valid; ``None``: any number, because
            whoever asks judges them.
        watch: Samples the boards while the repeats run.
        fill_s: Seconds that the repeats have to last together for the boards' sensors to tell their energy; a workload
            too short for that is repeated more often, for the boards' figures alone.
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
    work = _measure(running, workload, test, repeats, read_timeout, watch, fill_s, progress)
    with _no_garbage_collection():
        measured = running.run(work)
    everything, account = measured.traces, measured.account
    traces = everything[:repeats]
    warnings = [*measured.warnings, *_slow_start(traces), *_other_prompts(traces), *_books(account, workload)]
    warnings += _vacuous(traces, workload)
    invalid = measured.disturbance or _untrustworthy(traces, allowed_failures) or _beyond_the_client(account)
    return Launch(
        running.launch,
        running.info,
        tuple(traces),
        tuple(everything[repeats:]),
        account,
        measured.samples,
        warnings=tuple(warnings),
        invalid=invalid,
    )


@dataclass(repr=False)  # asyncio asks for the repr of a task's result, and that of a million stamps takes seconds
class _Measured:
    traces: list[RepeatTrace] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    samples: tuple[BoardSamples, ...] = ()
    disturbance: str | None = None
    warnings: list[str] = field(default_factory=list)


async def _measure(
    running: RunningEngine, workload: Workload, test: str, repeats: int, read_timeout: float,
    watch: Watch | None, fill_s: float, progress: Callable[[str], None],
) -> _Measured:  # fmt: skip
    vocabulary = Vocabulary(running.info.vocab_size, running.info.special_tokens)
    engine: Engine = running.engine
    measured = _Measured()
    traces = measured.traces

    def planned(label: str) -> list[Planned]:
        return plan(workload, vocabulary, test=test, launch=running.launch, repeat=label)

    async def once(label: str, number: int, work: list[Planned]) -> RepeatTrace:
        return await drive(
            engine, workload, work, launch=running.launch, repeat=number,
            repeat_id=f"{test}/{running.launch}/{label}", read_timeout=read_timeout,
        )  # fmt: skip

    warm: RepeatTrace | None = None
    for number in range(workload.warmup):
        progress(f"warm-up {number + 1}/{workload.warmup}")
        warm = await once(f"warmup-{number}", number, planned(f"warmup-{number}"))
    # The prompts are made before the boards are watched: what lies between two repeats counts for their energy.
    plans = [planned(str(number)) for number in range(_expected(repeats, fill_s, warm))]
    engine.disturbances()
    await engine.open_account()
    if watch is not None:
        await watch.begin()
    extra = 0
    while len(traces) < repeats or _too_short(traces, fill_s):
        number = len(traces)
        progress(f"repeat {number + 1}/{max(len(plans), number + 1)}")
        label = str(number) if not extra else f"{number}-after-{extra}"
        ready = number < len(plans) and not extra
        trace = await once(label, number, plans[number] if ready else planned(label))
        disturbed = engine.disturbances()
        if not disturbed:
            traces.append(trace)
        elif extra < _EXTRA_WARMUPS:
            extra += 1
            if extra == 1:
                measured.warnings.append(
                    f"The warm-up was too short: the engine still compiled during repeat {number + 1}, which was "
                    f"taken as warm-up and run again ({disturbed[0][-200:]})."
                )
        else:
            traces.append(trace)
            measured.disturbance = f"the engine kept compiling while it was measured ({disturbed[0][-200:]})"
            break
    if watch is not None:
        measured.samples = tuple(await watch.end())
    measured.account = await engine.close_account()
    return measured


def _expected(repeats: int, fill_s: float, warm: RepeatTrace | None) -> int:
    """How many repeats it will take to fill the window, judged by the warm-up."""
    if warm is None or warm.span is None or fill_s <= 0:
        return repeats
    lasts = max(1, warm.span[1] - warm.span[0])
    return max(repeats, min(_MOST_REPEATS, 1 + round(fill_s * NS_PER_S) // lasts))


def _too_short(traces: list[RepeatTrace], fill_s: float) -> bool:
    """Whether more repeats are needed to fill the window; never for what cannot be counted, and not without end."""
    if fill_s <= 0 or len(traces) >= _MOST_REPEATS:
        return False
    spans = [trace.span for trace in traces]
    if None in spans:
        return False
    return max(s[1] for s in spans if s) - min(s[0] for s in spans if s) < fill_s * NS_PER_S


def _books(account: Account, workload: Workload) -> list[str]:
    told = list(account.warnings)
    if account.client is not None and account.server is not None:
        told += disagreements(
            account.client.requests,
            account.client.output_tokens,
            account.server,
            shared_prefix=workload.shared_prefix > 0,
        )
    return told


def _beyond_the_client(account: Account) -> str | None:
    """A load that the client is not known to be able to time is the client's, not the server's."""
    client = account.client
    if client is None or client.calibration is None or not client.calibration.rate_is_limit:
        return None
    ceiling = client.calibration.chunk_rate * client.workers
    if client.peak_chunk_rate <= ceiling:
        return None
    return (
        f"the client was beyond its own limit: {client.peak_chunk_rate:,.0f} chunks/s came in, and {client.workers} "
        f"worker(s) time up to {ceiling:,.0f} chunks/s within 1 ms on this machine (more with workers=N "
        "after the engine's name)"
    )


def _untrustworthy(traces: list[RepeatTrace], allowed_failures: int | None) -> str | None:
    requests = [r for trace in traces for r in trace.requests]
    failed = [r for r in requests if not r.completed]
    if allowed_failures is not None:
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


def _vacuous(traces: list[RepeatTrace], workload: Workload) -> list[str]:
    single = [r for t in traces for r in t.completed if request_tpot(r) is None]
    if "tpot" not in workload.slo or not single:
        return []
    return [f"{len(single)} requests have no TPOT (one chunk of tokens) and met its SLO vacuously."]


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
