"""vLLM behind its own HTTP server: started, measured over HTTP, and ended by the plugin."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pytest_llmperf.clock import MonotonicClock
from pytest_llmperf.engines import EngineInfo, Offer, Request
from pytest_llmperf.engines.account import Account
from pytest_llmperf.engines.openai.engine import OpenAIEngine
from pytest_llmperf.engines.openai.load.calibration import calibrate_once
from pytest_llmperf.engines.openai.settings import CLIENT_SETTINGS, settings_of
from pytest_llmperf.engines.server.server import VllmServer
from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.engines.vllm_arguments import complete_arguments, has_dummy_weights
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.machine import cpu_name
from pytest_llmperf.trace import RequestTrace

__all__ = ["ServeEngine"]

T = TypeVar("T")

#: Arguments that are limits; what was not given vLLM chooses, and does not tell over HTTP.
_LIMITS = ("max_num_seqs", "max_num_batched_tokens", "block_size")


class ServeEngine:
    """One vLLM server on the loopback address, and the client that measures it.

    Args:
        spec: The model and the engine arguments; settings of the client among them are the client's.
        site: The session around it.
        log_path: Where the server's output goes.
    """

    def __init__(self, spec: EngineSpec, site: Site, log_path: str | None) -> None:
        self.clock = MonotonicClock()
        ours = {name: value for name, value in spec.arguments.items() if name in CLIENT_SETTINGS}
        self._settings = settings_of(ours)
        self._site = site
        self._spec = replace(
            spec,
            args={name: value for name, value in spec.args.items() if name not in CLIENT_SETTINGS},
            choice=replace(
                spec.choice,
                treatment={n: v for n, v in spec.choice.treatment.items() if n not in CLIENT_SETTINGS},
            ),
        )
        self._treatment = spec.choice.treatment
        self._server = VllmServer(self._spec, log_path)
        self._client: OpenAIEngine | None = None

    async def open(self) -> EngineInfo:
        """Start the server and wait until it serves; takes from 15 s on.

        Raises:
            OptionError: an engine argument does not exist.
            EngineError: it did not start; the message holds the root cause from its log.
        """
        await calibrate_once(self._site, self._settings)  # while nothing else runs
        url = await self._server.start(timeout=self._site.start_timeout)
        self._client = OpenAIEngine(self._spec, self._site, url=url, settings=self._settings)
        info = await self._while_alive(self._client.open())
        arguments = complete_arguments(self._spec)
        tensor = int(arguments.get("tensor_parallel_size") or 1)
        pipeline = int(arguments.get("pipeline_parallel_size") or 1)
        on_gpu = self._spec.choice.platform == "cuda"
        world = tensor * pipeline
        return replace(
            info,
            kind="serve",
            device=self._site.boards[0] if on_gpu and self._site.boards else cpu_name(),
            device_count=world if on_gpu else 1,
            dtype=_named(arguments.get("dtype"), info.dtype),
            quantization=arguments.get("quantization"),
            kv_cache_dtype=str(arguments.get("kv_cache_dtype") or "auto"),
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            args={**arguments, "request": info.args["request"]},
            treatment=dict(self._treatment),
            # Its page tells the KV cache that it came to, and is silent on what it was given.
            limits={**_given(arguments), **info.limits},
        )

    async def _while_alive(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something that needs the server; when it dies, say so at once."""
        task = asyncio.ensure_future(work)
        death = asyncio.ensure_future(self._server.died().wait())
        try:
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            if death.done():
                raise self._server.death()
            return task.result()
        finally:
            for one in (task, death):
                one.cancel()
            await asyncio.gather(task, death, return_exceptions=True)

    async def prepare(self, requests: Sequence[Request], at_once: int | None) -> None:
        """As the client does."""
        await self._while_alive(self._opened().prepare(requests, at_once))

    async def carry(self, offer: Offer) -> list[RequestTrace]:
        """As the client does.

        Raises:
            EngineError: the server died.
        """
        return await self._while_alive(self._opened().carry(offer))

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """As the client does, if the weights are any.

        Raises:
            EngineError: the server died.
        """
        if has_dummy_weights(complete_arguments(self._spec)):
            return Unavailable("the weights are dummies")
        return await self._while_alive(self._opened().outputs(prompts, length))

    def disturbances(self) -> list[str]:
        """Lines of the server's log since the last call that tell of compiling, capturing or tuning."""
        return self._server.disturbances()

    async def open_account(self) -> None:
        """As the client does."""
        await self._opened().open_account()

    async def close_account(self) -> Account:
        """As the client does."""
        return await self._opened().close_account()

    def _opened(self) -> OpenAIEngine:
        assert self._client is not None
        return self._client

    async def close(self) -> None:
        """End the client, then the server with all its processes."""
        client, self._client = self._client, None
        try:
            if client is not None:
                await client.close()
        finally:
            await self._server.stop()


def _given(arguments: Mapping[str, Any]) -> dict[str, int]:
    """The limits among the engine's arguments."""
    return {name: value for name in _LIMITS if type(value := arguments.get(name)) is int and value > 0}


def _named(dtype: Any, otherwise: str) -> str:
    return otherwise if dtype in (None, "auto") else str(dtype).removeprefix("torch.")
