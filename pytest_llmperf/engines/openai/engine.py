"""The engine for servers that speak OpenAI's protocol."""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_llmperf import __version__
from pytest_llmperf.clock import NS_PER_S, MonotonicClock
from pytest_llmperf.engines import EngineInfo, Offer, Request
from pytest_llmperf.engines.account import Account, Calibration
from pytest_llmperf.engines.openai.address import Address, Secrets, resolve, tls_context
from pytest_llmperf.engines.openai.decoding.answer import Decoded
from pytest_llmperf.engines.openai.dialect import Dialect
from pytest_llmperf.engines.openai.inquiry import Inquiry
from pytest_llmperf.engines.openai.load.books import Books, Busiest
from pytest_llmperf.engines.openai.load.calibration import calibrate_once
from pytest_llmperf.engines.openai.load.worker import Answer, Open
from pytest_llmperf.engines.openai.load.workers import Workers
from pytest_llmperf.engines.openai.negotiation import PROBE_TOKENS, negotiate
from pytest_llmperf.engines.openai.outputs import form_of, read, request_body
from pytest_llmperf.engines.openai.served import ServedModel, find_model, presentable
from pytest_llmperf.engines.openai.server_metrics import Snapshot, between, kv_cache, parse
from pytest_llmperf.engines.openai.settings import Settings, settings_of
from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.errors import EngineError, OptionError
from pytest_llmperf.fingerprint import Outputs, Unavailable
from pytest_llmperf.machine import cpu_name
from pytest_llmperf.models import config_digest, special_tokens
from pytest_llmperf.trace import RequestTrace

__all__ = ["OpenAIEngine", "request_name"]

#: A worker this busy gets company before the next load, if there are processors for it.
_BUSY = 0.5
#: Longest question outside of a load, seconds.
_INQUIRY_S = 10.0
#: Longest answer to a fixed prompt, seconds.
_ANSWER_S = 60.0
_LOOK_EVERY_S = 0.25
#: An answer of more events than this is not going to end.
_EVENTS_A_TOKEN = 16
_EVENTS_LEAST = 256
#: Of a model that the server does not describe: ids that every vocabulary has. One beyond the vocabulary kills a vLLM
#: server that has no tokenizer.
_UNKNOWN_VOCABULARY = 256
_UNKNOWN_SPECIAL = 16
#: The first ordinary ids of a large vocabulary are rare bytes; the probe begins here.
_PROBE_FROM = 1_000


class OpenAIEngine:
    """A server at a URL.

    Args:
        spec: The URL, the model, and settings among the arguments.
        site: The session around it.
        url: The server, where it is not the spec's own.
        settings: Likewise.
    """

    def __init__(
        self, spec: EngineSpec, site: Site, *, url: str | None = None, settings: Settings | None = None
    ) -> None:
        self.clock = MonotonicClock()
        self._spec = spec
        self._site = site
        self._settings = settings_of(spec.arguments) if settings is None else settings
        self._address = Address.parse(url or spec.choice.url or "")
        key = os.environ.get(self._settings.api_key_env, "")
        if not key and self._settings.api_key_env != "LLMPERF_API_KEY":
            raise OptionError(f"--llmperf-engine: the environment variable {self._settings.api_key_env} is not set.")
        if any(ord(c) < 32 or ord(c) > 126 for c in key):
            raise OptionError(f"The API key in {self._settings.api_key_env} holds a character that no header can.")
        self._secrets = Secrets((*self._address.secrets.values, *([key] if key else [])))
        self._headers = self._standing_headers(key)
        self._workers: Workers | None = None
        self._opening: Open | None = None
        self._inquiry: Inquiry | None = None
        self._dialect = Dialect("completions")
        self._served = ServedModel("", None, None)
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        self._books = Books()
        self._busiest_share = 0.0
        self._calibration: Calibration | None = None
        self._measuring = False
        self._before: Snapshot | None = None
        self._busiest = Busiest()

    def _standing_headers(self, key: str) -> dict[str, str]:
        headers = {
            "Host": self._address.host_header,
            "User-Agent": f"pytest-llmperf/{__version__}",
            "Accept-Encoding": "identity",
        }
        if key:
            headers["Authorization"] = f"Bearer {key}"
        elif self._address.authorization is not None:
            headers["Authorization"] = self._address.authorization
        return headers

    # Opening

    async def open(self) -> EngineInfo:
        """Find out what the server is and takes; check the client on a loopback server.

        Raises:
            EngineError: nothing answers at the URL, or it refuses every request.
            OptionError: the model that was asked for is not served there.
        """
        settings, address = self._settings, self._address
        context: ssl.SSLContext | None = None
        if address.tls:
            context = tls_context(settings.ca_file, verify=settings.verify)
        family, where = await asyncio.to_thread(resolve, address, timeout=self._site.connect_timeout)
        timeout = min(_INQUIRY_S, self._site.read_timeout)
        self._inquiry = inquiry = Inquiry(address, self._headers, context, timeout)
        listing = await asyncio.to_thread(inquiry.json, f"{address.base}/models")
        self._served = find_model(listing, self._spec.model, on_this_machine=address.is_loopback, secrets=self._secrets)
        self._opening = Open(
            family=family,
            where=where,
            name=f"{address.host}:{address.port}",
            tls=address.tls,
            host=address.host,
            ca_file=settings.ca_file,
            verify=settings.verify,
            connect_timeout_ns=round(self._site.connect_timeout * NS_PER_S),
            kernel_stamps=settings.stamps == "kernel",
            realtime=settings.realtime,
            tokenizer=self._served.tokenizer,
        )
        self._calibration = await calibrate_once(self._site, settings)
        await self._start_workers(settings.workers or 1)
        self._dialect, answer = await negotiate(address.endpoint, self._probe, shown=address.shown)
        if answer.error is not None:
            await self._check_survived(answer.error)
        if self._dialect.endpoint == "chat" and answer.input_tokens is not None:
            self._dialect = replace(self._dialect, overhead=max(0, answer.input_tokens - len(self._probe_prompt())))
        version = await asyncio.to_thread(inquiry.json, f"{address.root}/version")
        page = await asyncio.to_thread(inquiry.text, f"{address.root}/metrics")
        return replace(self._info(version), limits={} if page is None else kv_cache(page))

    async def _check_survived(self, error: str) -> None:
        """Tell a server that failed our first request from one that died of it.

        Raises:
            EngineError: nothing listens there any more.
        """
        try:
            await asyncio.to_thread(resolve, self._address, timeout=self._site.connect_timeout)
        except EngineError:
            raise EngineError(
                f"The server at {self._address.shown} ended at our first request ({error}).",
                remedy="See its log for why. A server without a tokenizer ends at token ids that its model does not "
                "have: say which model it is with --llmperf-model FOLDER.",
            ) from None

    async def _start_workers(self, count: int) -> None:
        if self._workers is not None:
            self._workers.close()
        assert self._opening is not None
        self._workers = Workers(self._opening, count)
        await self._workers.start()

    def _probe_prompt(self) -> tuple[int, ...]:
        low, high = self._vocabulary()
        return (*range(low, min(low + 15, high)), high - 1)

    def _vocabulary(self) -> tuple[int, int]:
        """The lowest id of the probe, and one above the highest of the vocabulary."""
        config = self._served.config
        if config is None:
            return _UNKNOWN_SPECIAL, _UNKNOWN_VOCABULARY
        text = config.get("text_config")
        size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
        if not isinstance(size, int) or size < 2:
            return _UNKNOWN_SPECIAL, _UNKNOWN_VOCABULARY
        return (_PROBE_FROM if size > 4 * _PROBE_FROM else min(size - 1, 8)), size

    async def _probe(self, dialect: Dialect) -> Decoded:
        request = Request(f"probe-{dialect.described}", self._probe_prompt(), PROBE_TOKENS)
        message = self._message(dialect, request)
        assert self._workers is not None
        number = self._number()
        await self._workers.prepare({number: message}, 1)
        timeout_ns = round(min(self._site.read_timeout, 60.0) * NS_PER_S)
        (answer,) = await self._workers.carry([number], None, None, timeout_ns)
        error = answer.decoded.error
        return answer.decoded if error is None else replace(answer.decoded, error=self._secrets.hide(error))

    def _info(self, version: Any) -> EngineInfo:
        settings, config = self._settings, self._served.config
        low, high = self._vocabulary()
        number = version.get("version") if isinstance(version, dict) else None
        maker = self._served.maker
        tensor = settings.tensor_parallel_size or 1
        pipeline = settings.pipeline_parallel_size or 1
        device, count = self._device(tensor * pipeline)
        return EngineInfo(
            kind="openai",
            version=f"{maker} {presentable(number, self._secrets)}".strip() if isinstance(number, str) else "unknown",
            device=device,
            device_count=count,
            simulated=False,
            model=self._served.name,
            model_digest=None if config is None else config_digest(config),
            model_config=config,
            dtype=settings.dtype or _dtype(config),
            quantization=settings.quantization,
            kv_cache_dtype=settings.kv_cache_dtype or "auto",
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            max_model_len=self._served.max_model_len or _longest(config),
            vocab_size=high,
            special_tokens=frozenset(range(low)) if config is None else special_tokens(config),
            args={"url": self._address.shown, "request": self._dialect.described, **self._spec.arguments},
            treatment=dict(self._spec.choice.treatment),
        )

    def _device(self, world: int) -> tuple[str, int]:
        """Product name and number of what the server runs on, as far as it can be known."""
        if self._settings.hardware is not None:
            return self._settings.hardware, self._settings.devices or world
        if self._address.is_loopback:
            boards = self._site.boards
            return (boards[0], self._settings.devices or world) if boards else (cpu_name(), 1)
        return f"the hardware of {self._address.host}", self._settings.devices or world

    # Carrying

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _message(self, dialect: Dialect, request: Request) -> bytes:
        body = dialect.body(self._served.id, request.prompt, request.output_len, request.sampling)
        headers = {
            **self._headers,
            "Accept": "text/event-stream",
            "Content-Type": "application/json",
            "X-Request-Id": request_name(request.request_id),
            "Content-Length": str(len(body)),
        }
        lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
        path = f"{self._address.base}{dialect.path}{self._address.query}"
        return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("ascii", "backslashreplace") + body

    async def prepare(self, requests: Sequence[Request], at_once: int | None) -> None:
        """Encode the requests, hand them to the workers, and open their connections."""
        assert self._workers is not None
        await self._adapt()
        self._numbers = {request.request_id: self._number() for request in requests}
        messages = {self._numbers[r.request_id]: self._message(self._dialect, r) for r in requests}
        await self._workers.prepare(messages, at_once)

    async def _adapt(self) -> None:
        """Take another worker when the busiest had too much to do."""
        assert self._workers is not None
        most = len(os.sched_getaffinity(0)) - (1 if self._address.is_loopback else 0)
        if self._settings.workers is None and self._busiest_share > _BUSY and self._workers.count < most:
            await self._start_workers(min(most, 2 * self._workers.count))
            self._busiest_share = 0.0

    async def carry(self, offer: Offer) -> list[RequestTrace]:
        """Let the workers carry an offer."""
        assert self._workers is not None
        numbers = [self._numbers[request.request_id] for request in offer.requests]
        self._workers.statistics.clear()
        # How busy the server is shows while it is; but asking costs it time, so only the warm-up is watched.
        watch = None if self._measuring else asyncio.ensure_future(self._look_now_and_then())
        try:
            answers = await self._workers.carry(
                numbers,
                offer.due_ns,
                offer.lanes,
                offer.read_timeout_ns,
                _EVENTS_LEAST + _EVENTS_A_TOKEN * max(request.output_len for request in offer.requests),
            )
        finally:
            if watch is not None:
                watch.cancel()
                await asyncio.gather(watch, return_exceptions=True)
        self._check_alive(answers)
        self._books.note(answers, self._workers.statistics)
        shares = [one.cpu_ns / one.wall_ns for one in self._workers.statistics if one.wall_ns > 0]
        self._busiest_share = max(self._busiest_share, *shares) if shares else self._busiest_share
        return [self._trace(r, a) for r, a in zip(offer.requests, answers, strict=True)]

    def _check_alive(self, answers: Sequence[Answer]) -> None:
        """A server that accepts no connection any more is not to be offered another load.

        Raises:
            EngineError: none of the requests got one.
        """
        refused = f"connection refused by {self._address.host}:{self._address.port}"
        if answers and all(answer.decoded.error == refused for answer in answers):
            raise EngineError(
                f"The server at {self._address.shown} is gone: it accepts no connection any more.",
                remedy="See its log for why it ended, and start it again.",
            )

    def _trace(self, request: Request, answer: Answer) -> RequestTrace:
        decoded = answer.decoded
        return RequestTrace(
            due_ns=answer.due_ns,
            sent_ns=answer.sent_ns,
            asked_input=len(request.prompt),
            asked_output=request.output_len,
            received_ns=decoded.received_ns,
            tokens=decoded.tokens,
            input_tokens=len(request.prompt) if decoded.input_tokens is None else decoded.input_tokens,
            output_tokens=decoded.output_tokens,
            token_source=decoded.token_source,
            chunk_tokens=decoded.chunk_tokens,
            time_source=answer.time_source,
            upper_bounds=decoded.upper_bounds,
            connected_late=answer.connected_late,
            error=None if decoded.error is None else self._secrets.hide(decoded.error),
        ).checked()

    # What it answers

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """Ask for whole answers, one after the other; a server need not tell its tokens."""
        assert self._inquiry is not None
        inquiry = replace(self._inquiry, timeout=min(_ANSWER_S, self._site.read_timeout))
        path = f"{self._address.base}{self._dialect.path}"
        answers = []
        for prompt in prompts:
            body = request_body(self._dialect, self._served.id, prompt, length)
            answer = read(await asyncio.to_thread(inquiry.post, path, body))
            if isinstance(answer, Unavailable):
                return replace(answer, reason=self._secrets.hide(answer.reason))
            answers.append(answer)
        return Outputs(Outputs.digest(prompts, length, form_of(self._dialect)), tuple(answers))

    # The books

    def disturbances(self) -> list[str]:
        """Nothing: what another process compiles is not told."""
        return []

    async def open_account(self) -> None:
        """Read the server's metrics, and begin to count."""
        self._measuring = True
        self._books = Books()
        self._before = await asyncio.to_thread(self._snapshot)

    async def close_account(self) -> Account:
        """How the client did since then, and what the server's own metrics say of the same time."""
        self._measuring = False
        busiest, self._busiest = self._busiest, Busiest()
        assert self._workers is not None
        client = self._books.client_side(self._workers.count, self._calibration)
        warnings = [*self._served.warnings, *self._books.warnings()]
        server = None
        if self._before is not None and (after := await asyncio.to_thread(self._snapshot)) is not None:
            server = between(self._before, after)
        return Account(client, server, busiest.running, busiest.waiting, tuple(warnings))

    def _snapshot(self) -> Snapshot | None:
        assert self._inquiry is not None
        text = self._inquiry.text(f"{self._address.root}/metrics")
        try:
            snapshot = None if text is None else parse(text)
        except ValueError:
            return None
        return snapshot if snapshot is not None and snapshot.is_vllm() else None

    async def _look_now_and_then(self) -> None:
        while (snapshot := await asyncio.to_thread(self._snapshot)) is not None:
            self._busiest.note(snapshot)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def close(self) -> None:
        """End the workers and with them every connection."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()


def request_name(request_id: str) -> str:
    """What a server is told in ``X-Request-Id``: any test id, as a header can hold it."""
    return hashlib.sha256(request_id.encode("utf-8", "backslashreplace")).hexdigest()[:24]


def _dtype(config: Mapping[str, Any] | None) -> str:
    if config is None:
        return "unknown"
    named = config.get("dtype") or config.get("torch_dtype") or "bfloat16"
    # vLLM computes in bfloat16 what was stored in float32.
    return "bfloat16" if named in ("float32", "auto") else str(named).removeprefix("torch.")


def _longest(config: Mapping[str, Any] | None) -> int:
    """Without the server's word: what the config allows, else no limit of ours."""
    longest = (config or {}).get("max_position_embeddings")
    return longest if isinstance(longest, int) and longest > 0 else 2**31
