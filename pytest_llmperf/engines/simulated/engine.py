"""A simulated GPU with vLLM on it, in virtual time; everything it produces is marked simulated.

What happens in it says :mod:`pytest_llmperf.simulation`: which sequences take part in a step, when it is launched, how
long it takes. The board (:class:`~pytest_llmperf.engines.simulated.board.SimulatedBoard`) says when it ends, because it
holds the clocks and the power limit. Around them is a client in the same process, which submits requests one after the
other and has each token a little after its step has ended.

An offer is carried out at once: nothing can come in between, so all of it is foretold, and then the clock is put
forward. Single requests (``generate``) are served as time passes, on the same server and with the same times.

Noise is multiplicative and log-normal: one factor for each launch, one for each repeat, drawn from the seed. It and the
slowdown are factors on every time, the GPU's and the host's alike.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from math import exp

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.clock import VirtualClock
from pytest_llmperf.engines import Chunk, EngineInfo, Offer, Request
from pytest_llmperf.engines.account import Account, ServerSide
from pytest_llmperf.engines.simulated.board import NoBoard, SimulatedBoard
from pytest_llmperf.engines.simulated.client import Load, Submissions, stamps_of
from pytest_llmperf.engines.simulated.context import longest_sequence, vocabulary_size
from pytest_llmperf.engines.simulated.deployment import deploy
from pytest_llmperf.engines.simulated.settings import check_settings, read_arguments
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.engines.streams import StreamingEngine
from pytest_llmperf.errors import EngineError, LlmperfError, RequestError
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.models import config_digest
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.scheduler import Sequence as Tokens
from pytest_llmperf.simulation.server import Served, Server
from pytest_llmperf.trace import RequestTrace

__all__ = ["SimulatedEngine"]


class SimulatedEngine(StreamingEngine):
    """vLLM on a GPU that exists in virtual time only.

    Args:
        spec: The simulated board, the model, and the settings among its arguments.
        launch: Which engine start this is; with the seed it decides the launch's noise.
        board: What it runs on, as many boards together as the model is split over; without one the clocks run free.
        model: Of the board, in place of the one that bears the engine's name.

    Raises:
        OptionError: A setting or an argument makes no sense.
        EngineError: The model cannot be served so.
    """

    def __init__(
        self,
        spec: EngineSpec,
        launch: int = 0,
        board: SimulatedBoard | None = None,
        *,
        model: BoardModel | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self._spec = spec
        self._launch = launch
        # Not the spec's key: that holds the model's folder, and a seed has to give the same on every machine.
        arguments = json.dumps(spec.arguments, sort_keys=True, default=repr)
        self._name = f"{spec.choice.name}/{spec.model.name}/{arguments}"
        self._settings = check_settings(spec.choice.name, spec.arguments)
        if spec.model.config is None:
            raise EngineError(
                f"{spec.choice.name} needs the config.json of {spec.model.name}, and nothing is downloaded here.",
                remedy="Give --llmperf-model a folder with a config.json, or a shipped shape.",
            )
        self._config = spec.model.config
        model = model or BoardModel.named(spec.choice.name.removeprefix("sim:"))
        longest = longest_sequence(self._config)
        asked = read_arguments(spec.choice.name, spec.arguments)
        self._deployment = deploy(Architecture.from_config(self._config), longest, asked, model)
        self._board: SimulatedBoard = board or NoBoard.of(model)
        self._steps = self._deployment.steps()
        self._opened = False
        self._factors: dict[str, float] = {}
        self._skipping = True
        self._foretold = False
        self._serving: asyncio.Task[None] | None = None
        self._start_afresh()

    def _start_afresh(self) -> None:
        """With an empty cache and nothing under way."""
        skipping, board = self._skipping, self._board
        self._server = Server(
            self._deployment.scheduler(), self._steps, board.run, skipping=skipping, outlook=board if skipping else None
        )
        self._submissions = Submissions(self._deployment.board.host)
        self._preempted = 0
        self._unread: dict[Served, asyncio.Queue[Chunk | BaseException]] = {}
        self._books = self._read_books()

    async def open(self) -> EngineInfo:
        """Start at once; a simulated board needs no warming up."""
        if not self._opened:
            self._opened = True
            self._start_afresh()
            self._board.attach(self.clock.now, power_scale=self._settings["power_scale"])
            self._board.load(self._deployment.footprint_bytes)
        deployed, asked, config = self._deployment, self._deployment.arguments, self._config
        quantization = deployed.model.quantization
        return EngineInfo(
            kind="sim",
            version=self._spec.choice.name,
            device=deployed.board.product.name,
            device_count=asked.tensor_parallel_size,
            simulated=True,
            model=self._spec.model.name,
            model_digest=config_digest(config),
            model_config=config,
            dtype=deployed.model.compute_dtype,
            quantization=None if quantization is None else quantization.method,
            kv_cache_dtype=asked.kv_cache_dtype,
            tensor_parallel_size=asked.tensor_parallel_size,
            pipeline_parallel_size=1,
            max_model_len=deployed.max_model_len,
            vocab_size=vocabulary_size(config),
            special_tokens=frozenset(),
            args={**self._settings, **self._spec.arguments, **deployed.in_force},
            treatment=dict(self._spec.choice.treatment),
            limits=deployed.in_force,
        )

    def _admit(self, request: Request) -> Served:
        """What the server takes for a request.

        Raises:
            RequestError: It is longer than the engine serves.
        """
        length, longest = len(request.prompt) + request.output_len, self._deployment.max_model_len
        if length > longest or not request.prompt or request.output_len < 1:
            raise RequestError(
                f"The engine refused the request: {len(request.prompt)} prompt tokens and {request.output_len} output "
                f"tokens are not between 1 each and max_model_len ({longest}) together."
            )
        return Served(Tokens(request.prompt, request.output_len), factor=self._factor(request))

    def _factor(self, request: Request) -> float:
        """On all times of a request's repeat."""
        if request.repeat_id not in self._factors:
            seed = int(self._settings["seed"])
            launch = random.Random(f"{seed}/{self._name}/{self._launch}").gauss(0, self._settings["launch_noise"])
            repeat = random.Random(f"{seed}/{request.repeat_id}").gauss(0, self._settings["repeat_noise"])
            self._factors[request.repeat_id] = exp(launch + repeat) * self._settings["slowdown"]
        return self._factors[request.repeat_id]

    async def carry(self, offer: Offer) -> list[RequestTrace]:
        """Foretell what becomes of an offer, and put the clock forward to its end."""
        if self._unread:
            return await super().carry(offer)
        self._check_alone()
        now_ns = self.clock.now()
        self._server.token_ns = []
        load = Load(offer, self._server, self._submissions, self._admit, now_ns)
        self._foretold = True
        try:
            traces, end_ns = load.carry()
            await self.clock.sleep_until(end_ns)
        except BaseException as error:
            self._abandon()
            if isinstance(error, Exception) and not isinstance(error, LlmperfError):
                raise _failure(error) from error
            raise
        finally:
            self._foretold = False
        self._preempted += sum(served.sequence.preemptions > 0 for served in load.served())
        return traces

    def _check_alone(self) -> None:
        """An offer that has been foretold leaves no room for anything else until it has ended.

        Raises:
            EngineError: One is under way.
        """
        if self._foretold:
            raise EngineError(
                "A simulated engine carries one offer at a time, and one is under way.",
                remedy="Await it first, or send all requests with generate().",
            )

    def _abandon(self) -> None:
        """Nothing that lies ahead of now happens."""
        self._server.rest(self.clock.now())
        self._submissions.abandon(self.clock.now())
        self._board.abandon()

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:
        """Submit a request and yield its tokens as the steps produce them."""
        self._check_alone()
        served = self._admit(request)
        chunks: asyncio.Queue[Chunk | BaseException] = asyncio.Queue()
        served.data = request
        self._unread[served] = chunks
        self._submissions.submit(self._server, served, self.clock.now())
        if self._serving is None or self._serving.done():
            self._serving = asyncio.get_running_loop().create_task(self._serve())
        try:
            while True:
                chunk = await chunks.get()
                if isinstance(chunk, BaseException):
                    raise chunk
                await self.clock.sleep_until(chunk.received_ns)
                yield chunk
                if chunk.stamps is not None:
                    return
        finally:
            # A request that was given up frees its place, as with a real engine.
            self._unread.pop(served, None)
            self._preempted += served.sequence.preemptions > 0
            self._server.withdraw(served, self.clock.now())

    async def _serve(self) -> None:
        """Work in steps until nothing is left to do; a mistake in the model is told to every request."""
        try:
            while (when := self._server.next_ns()) is not None:
                await self.clock.sleep_until(when)
                self._server.advance()
                self._hand_out()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever it is: a request that waits would wait for ever
            told = _failure(error) if isinstance(error, Exception) and not isinstance(error, LlmperfError) else error
            for chunks in self._unread.values():
                chunks.put_nowait(told)
            self._abandon()

    def _hand_out(self) -> None:
        token_ns = self._server.token_ns
        for served in self._server.given:
            chunks = self._unread.get(served)
            if chunks is None:
                continue
            stamps = stamps_of(served, token_ns) if served.ended else None
            chunks.put_nowait(
                Chunk(
                    received_ns=token_ns[-1] + self._submissions.delivery_ns(served),
                    tokens=1,
                    input_tokens=len(served.sequence.prompt),
                    output_tokens=served.sequence.output_len if served.ended else None,
                    stamps=stamps,
                )
            )

    def _read_books(self) -> tuple[int, int, int, int]:
        """Preempted requests, preemptions, prompt tokens looked up in the prefix cache, and found there."""
        blocks = self._server.scheduler.blocks
        return self._preempted, self._server.preemptions, blocks.queries, blocks.hits

    async def open_account(self) -> None:
        """From now on it counts."""
        self._books = self._read_books()

    async def close_account(self) -> Account:
        """How often sequences were preempted, and what the prefix cache found; nothing where there was neither."""
        requests, preemptions, queries, hits = (
            now - before for now, before in zip(self._read_books(), self._books, strict=True)
        )
        if not preemptions and not queries:
            return Account()
        told = ServerSide(preemptions=preemptions, prefix_cache_hit_rate=hits / queries if queries else None)
        if not preemptions:
            return Account(server=told)
        tokens = self._deployment.kv_blocks * self._deployment.arguments.block_size
        warning = (
            f"Requests were preempted {preemptions} times ({requests} of them) and computed anew: the KV cache holds "
            f"only {tokens} tokens."
        )
        return Account(server=told, warnings=(warning,))

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """Nothing: only the time of a token is simulated."""
        del prompts, length
        return Unavailable("a simulated engine generates nothing")

    def disturbances(self) -> list[str]:
        """Nothing: there is nothing to compile."""
        return []

    async def close(self) -> None:
        """Drop whatever was running, and leave the board."""
        if self._serving is not None and not self._serving.done():
            self._serving.cancel()
        if self._opened:
            self._opened = False
            self._abandon()
            self._board.unload()
            self._board.detach()


def _failure(error: Exception) -> EngineError:
    return EngineError(f"The simulation failed: {type(error).__name__}: {error}.")
