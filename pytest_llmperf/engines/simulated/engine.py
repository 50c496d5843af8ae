"""A simulated GPU: a plain latency model in virtual time.

The engine serves like a continuous-batching server: it works in steps, each step takes in the prompts that wait
(up to a token budget) and decodes one token of every running sequence. A step lasts as long as the roofline
allows, divided by the share of the peaks that real engines reach, plus a fixed cost per step:

    max(bytes / (bandwidth x 0.66), FLOPs / (peak x 0.65)) + 0.25 ms

The three constants put the model of Mistral-7B on an H200 near what was measured there (4.67 ms per token at
batch 1, 1.48 s for 16 requests of 512 + 256 tokens). They are no fit, and say nothing about other boards.

The peaks hold at the board's highest clocks, where it runs free. FLOPs go with the SM clock. Bandwidth goes with the
memory clock, and below a share of the highest SM clock with that too: fewer reads are under way at a time then. The
fixed cost of a step is the host's.

The board (:class:`~pytest_llmperf.engines.simulated.board.SimulatedBoard`) is told of each step when it begins, and
says when it ends. What power that takes, and whether the clock gives way, is the board's to say.

Noise is multiplicative and log-normal: one factor for each launch, one for each repeat, drawn from the seed.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import exp, inf
from typing import Any

from pytest_llmperf.arithmetic import Architecture, Hardware
from pytest_llmperf.clock import VirtualClock
from pytest_llmperf.engines import Chunk, EngineInfo, Request
from pytest_llmperf.engines.simulated.board import NoBoard, SimulatedBoard
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.engines.streams import StreamingEngine
from pytest_llmperf.errors import EngineError, OptionError
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.models import config_digest
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.steps import Pace
from pytest_llmperf.trace import EngineStamps

__all__ = ["SimulatedEngine"]

_BOARDS = {
    "sim:v100": "Tesla V100-SXM2-32GB",
    "sim:a100": "NVIDIA A100-SXM4-80GB",
    "sim:h100": "NVIDIA H100 80GB HBM3",
    "sim:h200": "NVIDIA H200",
}
_BANDWIDTH_SHARE = 0.66
_FLOPS_SHARE = 0.65
_STEP_OVERHEAD_S = 0.25e-3
#: The share of the highest SM clock below which it takes away from the bandwidth that can be reached: a guess.
_BANDWIDTH_KNEE = 0.6
#: Of the memory, how much a server takes for weights and KV cache: vLLM's default.
_MEMORY_SHARE = 0.9
_TOKEN_BUDGET = 8192
_MAX_SEQUENCES = 256

#: The settings that a simulated engine takes, and their defaults.
_SETTINGS: dict[str, float] = {"seed": 0, "launch_noise": 0.0, "repeat_noise": 0.0, "slowdown": 1.0, "power_scale": 1.0}
#: Those that are a factor, and on what.
_FACTORS = {"slowdown": "every time", "power_scale": "the board's power"}
#: Arguments of real engines that change nothing here: a suite that names them still runs.
_WITHOUT_EFFECT = {"gpu_memory_utilization", "max_model_len", "load_format", "enforce_eager"}


@dataclass(eq=False)
class _Sequence:
    request: Request
    queued_ns: int
    chunks: asyncio.Queue[Chunk | BaseException] = field(default_factory=asyncio.Queue)
    scheduled_ns: int = 0
    first_ns: int = 0
    generated: int = 0

    @property
    def context(self) -> int:
        return len(self.request.prompt) + self.generated


class SimulatedEngine(StreamingEngine):
    """A GPU that exists in virtual time only; everything it produces is marked simulated.

    Args:
        spec: The simulated board, the model, and the settings among its arguments.
        launch: Which engine start this is; with the seed it decides the launch's noise.
        board: What it runs on; without one the clocks run free.
    """

    def __init__(self, spec: EngineSpec, launch: int = 0, board: SimulatedBoard | None = None) -> None:
        self.clock = VirtualClock()
        self._model = BoardModel.named(spec.choice.name.removeprefix("sim:"))
        self._board: SimulatedBoard = board or NoBoard.of(self._model)
        self._opened = False
        self._spec = spec
        self._launch = launch
        # Not the spec's key: that holds the model's folder, and a seed has to give the same on every machine.
        arguments = json.dumps(spec.arguments, sort_keys=True, default=repr)
        self._name = f"{spec.choice.name}/{spec.model.name}/{arguments}"
        self._settings = _settings(spec)
        self._hardware = Hardware.named(_BOARDS[spec.choice.name])
        if spec.model.config is None:
            raise EngineError(
                f"{spec.choice.name} needs the config.json of {spec.model.name}, and nothing is downloaded here.",
                remedy="Give --llmperf-model a folder with a config.json, or a shipped shape.",
            )
        self._config = spec.model.config
        model = Architecture.from_config(self._config)
        # The same contexts come back in every repeat; what they cost is looked up.
        self._kv_bytes = cache(model.kv_bytes)
        self._decode_flops = cache(model.flops_per_token)
        self._prefill_flops = cache(model.prefill_flops)
        self._weight_bytes = cache(model.decode_weight_bytes)
        self._footprint = max(model.weight_bytes(), round(_MEMORY_SHARE * (self._hardware.memory_bytes or 0)))
        self._factors: dict[str, float] = {}
        self._waiting: list[_Sequence] = []
        self._prefilling: list[_Sequence] = []
        self._running: list[_Sequence] = []
        self._stepper: asyncio.Task[None] | None = None

    async def open(self) -> EngineInfo:
        """Start at once; a simulated board needs no warming up."""
        config = self._config
        if not self._opened:
            self._opened = True
            self._board.attach(self.clock.now, power_scale=self._settings["power_scale"])
            self._board.load(self._footprint)
        return EngineInfo(
            kind="sim",
            version=self._spec.choice.name,
            device=self._hardware.name,
            device_count=1,
            simulated=True,
            model=self._spec.model.name,
            model_digest=config_digest(config),
            model_config=config,
            dtype="bfloat16",
            quantization=None,
            kv_cache_dtype="auto",
            tensor_parallel_size=1,
            pipeline_parallel_size=1,
            max_model_len=int(config.get("max_position_embeddings", 2048)),
            vocab_size=int(config.get("vocab_size", 32000)),
            special_tokens=frozenset(),
            args=dict(self._settings),
            treatment=dict(self._spec.choice.treatment),
        )

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:
        """Queue a request and yield its tokens as the steps produce them."""
        sequence = _Sequence(request, queued_ns=self.clock.now())
        self._waiting.append(sequence)
        if self._stepper is None or self._stepper.done():
            self._stepper = asyncio.get_running_loop().create_task(self._serve())
        try:
            while True:
                chunk = await sequence.chunks.get()
                if isinstance(chunk, BaseException):
                    raise chunk
                yield chunk
                if chunk.stamps is not None:
                    return
        finally:
            # A request that was given up frees its place, as with a real engine.
            for line in (self._waiting, self._prefilling, self._running):
                if sequence in line:
                    line.remove(sequence)

    async def _serve(self) -> None:
        """Work in steps until nothing waits and nothing runs; a mistake in the model is told to every request."""
        try:
            await self._steps()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever it is: a request that waits would wait for ever
            told = error
            if isinstance(error, Exception):
                told = EngineError(f"The simulation failed: {type(error).__name__}: {error}.")
            for sequence in [*self._waiting, *self._prefilling, *self._running]:
                sequence.chunks.put_nowait(told)

    async def _steps(self) -> None:
        # Everything submitted at the same instant takes part in the same first step.
        await asyncio.sleep(0)
        while self._waiting or self._running:
            self._admit()
            await self.clock.sleep_until(self._begin_step(self._prefilling, self._running))
            self._running += self._prefilling
            self._prefilling.clear()
            for sequence in list(self._running):
                self._emit(sequence)
            # Clients that answer to a token with a new request do so before the next step.
            await asyncio.sleep(0)

    def _admit(self) -> None:
        budget = _TOKEN_BUDGET - len(self._running)
        while self._waiting and len(self._running) + len(self._prefilling) < _MAX_SEQUENCES:
            length = len(self._waiting[0].request.prompt)
            # A prompt longer than the whole budget still has to be served: alone.
            if length > budget and self._prefilling:
                break
            budget -= length
            sequence = self._waiting.pop(0)
            sequence.scheduled_ns = self.clock.now()
            self._prefilling.append(sequence)

    def _begin_step(self, prefills: list[_Sequence], decodes: list[_Sequence]) -> int:
        """Tell the board what begins; when it will end, in ns."""
        flops = sum(self._prefill_flops(len(s.request.prompt)) for s in prefills)
        flops += sum(self._decode_flops(s.context) for s in decodes)
        tokens = sum(len(s.request.prompt) for s in prefills) + len(decodes)
        moved = self._weight_bytes(max(1, tokens)) + sum(self._kv_bytes(s.context) for s in decodes)
        top_sm, top_memory = self._model.product.sm_clocks_mhz[1], self._model.product.memory_clocks_mhz[-1]
        bandwidth = self._hardware.peak_bandwidth
        top = self._hardware.peak_flops(self._compute_dtype())

        def pace(sm_mhz: float, memory_mhz: float) -> Pace:
            sm_share = sm_mhz / top_sm
            peak = top * sm_share
            reached = bandwidth * _BANDWIDTH_SHARE * memory_mhz / top_memory * min(1.0, sm_share / _BANDWIDTH_KNEE)
            seconds = max(moved / reached, flops / (peak * _FLOPS_SHARE)) + _STEP_OVERHEAD_S
            return Pace(seconds, moved / (seconds * bandwidth), flops / (seconds * peak))

        stretch = self._settings["slowdown"] * self._noise((prefills or decodes)[0].request)
        return self._board.run(self.clock.now(), pace, stretch=stretch)

    def _compute_dtype(self) -> str:
        # The V100 has no bfloat16; its engines compute in float16.
        return "float16" if self._spec.choice.name == "sim:v100" else "bfloat16"

    def _noise(self, request: Request) -> float:
        if request.repeat_id not in self._factors:
            seed = int(self._settings["seed"])
            launch = random.Random(f"{seed}/{self._name}/{self._launch}").gauss(0, self._settings["launch_noise"])
            repeat = random.Random(f"{seed}/{request.repeat_id}").gauss(0, self._settings["repeat_noise"])
            self._factors[request.repeat_id] = exp(launch + repeat)
        return self._factors[request.repeat_id]

    def _emit(self, sequence: _Sequence) -> None:
        now = self.clock.now()
        sequence.generated += 1
        sequence.first_ns = sequence.first_ns or now
        finished = sequence.generated == sequence.request.output_len
        stamps = EngineStamps(sequence.queued_ns, sequence.scheduled_ns, sequence.first_ns, now) if finished else None
        sequence.chunks.put_nowait(
            Chunk(now, 1, len(sequence.request.prompt), sequence.generated if finished else None, stamps)
        )
        if finished:
            self._running.remove(sequence)

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """Nothing: only the time of a token is simulated."""
        del prompts, length
        return Unavailable("a simulated engine generates nothing")

    def disturbances(self) -> list[str]:
        """Nothing: there is nothing to compile."""
        return []

    async def close(self) -> None:
        """Drop whatever was running, and leave the board."""
        if self._stepper is not None and not self._stepper.done():
            self._stepper.cancel()
        self._waiting.clear()
        self._running.clear()
        if self._opened:
            self._opened = False
            self._board.unload()
            self._board.detach()


def _settings(spec: EngineSpec) -> dict[str, float]:
    own = {name: value for name, value in spec.args.items() if name not in _WITHOUT_EFFECT}
    return check_settings(spec.choice.name, {**own, **spec.choice.treatment})


def check_settings(engine: str, given: Mapping[str, Any]) -> dict[str, float]:
    """The settings of a simulated engine, complete.

    Raises:
        OptionError: a setting does not exist, is no number, or makes no sense.
    """
    for name, value in given.items():
        if name not in _SETTINGS:
            raise OptionError(f"{engine} has no setting {name!r}.", remedy=f"It takes: {', '.join(sorted(_SETTINGS))}.")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
            raise OptionError(f"{engine}: {name} is a number of at least 0, not {value!r}.")
        if name.endswith("_noise") and value > 1:
            raise OptionError(f"{engine}: {name} is a relative standard deviation of at most 1, not {value!r}.")
        if name in _FACTORS and not 1e-3 <= value <= 1e3:
            raise OptionError(
                f"{engine}: {name} is a factor on {_FACTORS[name]} from 0.001 to 1000, and cannot be {value!r}."
            )
    return {**_SETTINGS, **given}
