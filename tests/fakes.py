"""Small stand-ins: requests and repeats made by hand, and an engine that follows a script in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from pytest_llmperf.clock import NS_PER_S, VirtualClock
from pytest_llmperf.engines import Chunk, EngineInfo, Request
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec, specify
from pytest_llmperf.engines.streams import StreamingEngine
from pytest_llmperf.trace import RepeatTrace, RequestTrace

MS = 1_000_000
SPEC = specify(EngineChoice("sim:h200", "sim", {}, "as asked"), "tiny-llama", {})

INFO = EngineInfo(
    kind="fake",
    version="1",
    device="Fake GPU",
    device_count=1,
    simulated=True,
    model="tiny-llama",
    model_digest="0123456789ab",
    model_config=None,
    dtype="bfloat16",
    quantization=None,
    kv_cache_dtype="auto",
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    max_model_len=4096,
    vocab_size=32000,
    special_tokens=frozenset({0, 1, 2}),
    args={},
    treatment={},
)


def request(
    *received_ms: float,
    due: float = 0,
    sent: float | None = None,
    tokens: Iterable[int] | None = None,
    counted: int | None = None,
    prompt: int = 1,
    error: str | None = None,
) -> RequestTrace:
    """A request trace in milliseconds: chunks of one token each, unless ``tokens`` says otherwise."""
    sizes = tuple(tokens) if tokens is not None else (1,) * len(received_ms)
    output = sum(sizes) if counted is None else counted
    return RequestTrace(
        due_ns=round(due * MS),
        sent_ns=round((due if sent is None else sent) * MS),
        asked_input=prompt,
        asked_output=output,
        received_ns=tuple(round(at * MS) for at in received_ms),
        tokens=sizes,
        input_tokens=prompt,
        output_tokens=output,
        token_source="counted" if counted is None else "server",
        error=error,
    )


def repeat(*requests: RequestTrace, loop: str = "batch", number: int = 0, launch: int = 0) -> RepeatTrace:
    return RepeatTrace(launch, number, loop, requests)


#: One step of an answer: seconds to wait and tokens to bring, an error to raise, or ``None`` to stall for ever.
Step = tuple[float, int] | Exception | None
Script = Callable[[Request, int], Iterable[Step]]


def tokens(first_s: float, each_s: float) -> Script:
    """The answer of a well-behaved engine: as many tokens as asked, one at a time."""

    def answer(request: Request, _: int) -> Iterable[Step]:
        return [(first_s, 1), *[(each_s, 1)] * (request.output_len - 1)]

    return answer


class ScriptedEngine(StreamingEngine):
    """Answers each request as its script says.

    Args:
        script: From a request and its number (from 0, over the engine's life) to the steps of the answer.
        one_at_a_time: Whether a request waits until those before it have been answered.
        disturbed: What ``disturbances`` returns, call by call; nothing when it is used up.
        info: What ``open`` returns.
    """

    def __init__(
        self,
        script: Script,
        *,
        one_at_a_time: bool = False,
        disturbed: Iterable[list[str]] = (),
        info: EngineInfo = INFO,
    ) -> None:
        self.clock = VirtualClock()
        self.requests: list[Request] = []
        self.arrivals_ns: list[int] = []
        self.in_flight = self.most_in_flight = 0
        self.log: list[str] = []
        self._script = script
        self._turn = asyncio.Semaphore(1) if one_at_a_time else asyncio.Semaphore(10**6)
        self._disturbed = iter(disturbed)
        self._info = info

    async def open(self) -> EngineInfo:
        self.log.append("open")
        return self._info

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:
        number = len(self.requests)
        self.requests.append(request)
        self.arrivals_ns.append(self.clock.now())
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async with self._turn:
                for step in self._script(request, number):
                    if step is None:
                        await asyncio.Event().wait()
                    elif isinstance(step, Exception):
                        raise step
                    else:
                        await self.clock.sleep_until(self.clock.now() + round(step[0] * NS_PER_S))
                        yield Chunk(self.clock.now(), step[1])
        finally:
            self.in_flight -= 1

    def disturbances(self) -> list[str]:
        return next(self._disturbed, [])

    async def close(self) -> None:
        self.log.append("close")


def spec_with(**args: object) -> EngineSpec:
    return specify(SPEC.choice, "tiny-llama", args)
