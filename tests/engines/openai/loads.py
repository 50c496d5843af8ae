"""The load client against a player: in a thread with all of the worker but its process, or as the engine."""

from __future__ import annotations

import json
import multiprocessing.connection
import socket
import threading
import time

from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.openai.engine import OpenAIEngine
from pytest_llmperf.engines.openai.load import worker
from pytest_llmperf.engines.openai.load.worker import Carry, Failed, Open, Prepare
from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec
from pytest_llmperf.models import Model

from .player import Reply
from .served import DONE, event, frame, head, text, usage

MS = 1_000_000
#: Two clocks read one after the other, and one converted to the other, are that far apart at most.
CLOCKS_NS = 20_000
PARTS = [event(text(" a")), event(text(" b")), event(usage(2)), DONE]
ANSWER = frame(PARTS, "chunked")
UNNAMED = Model("", "", None, has_weights=True, has_tokenizer=True)


def steps(parts, ms=0.0):
    return [(ms, part) for part in parts]


def good(_=None) -> Reply:
    """A complete answer of two tokens; the connection stays."""
    return Reply(steps(ANSWER))


def request(body=b"{}", path="/v1/completions") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: player\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def opening(player, **fields) -> Open:
    there = {"family": player.family, "where": player.where, "name": f"player:{player.port}"}
    return Open(**{**there, "realtime": False, "connect_timeout_ns": 20_000 * MS, **fields})


class InThread:
    """The worker's main loop in a thread of this process, at the other end of its pipe."""

    def __init__(self, order: Open) -> None:
        ours, theirs = socket.socketpair()
        self._pipe = multiprocessing.connection.Connection(ours.detach())
        self._thread = threading.Thread(target=worker.main, args=(theirs.detach(),), daemon=True)
        self._thread.start()
        self.ask(order)

    def __enter__(self) -> InThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def ask(self, order):
        self._pipe.send(order)
        reply = self._pipe.recv()
        assert not isinstance(reply, Failed), reply.reason
        return reply

    def carry(self, messages, *, connections=0, due_ns=None, lanes=None, timeout_ms=20_000, most_events=None):
        """Carry these at once; returns what the worker did."""
        if connections is not None:
            self.ask(Prepare(dict(enumerate(messages)), connections))
        numbers = tuple(range(len(messages)))
        return self.ask(Carry(numbers, due_ns, time.monotonic_ns(), lanes, round(timeout_ms * MS), most_events))


def carry(player, messages=1, *, connections=0, due_ns=None, lanes=None, timeout_ms=20_000, most_events=None, **fields):
    """The answers to these requests, carried by a client of their own."""
    messages = [request()] * messages if isinstance(messages, int) else messages
    with InThread(opening(player, **fields)) as client:
        return client.carry(
            messages,
            connections=connections,
            due_ns=due_ns,
            lanes=lanes,
            timeout_ms=timeout_ms,
            most_events=most_events,
        ).answers


def one(player, message=None, **options):
    """The answer to one request."""
    (answer,) = carry(player, [request() if message is None else message], **options)
    return answer


def openai(stream=good, models=("m",), **paths):
    """A server that lists models and streams; ``paths`` replaces answers to single paths."""

    def answer(asked) -> Reply:
        path = asked.path.partition("?")[0]
        if path in paths:
            return paths[path](asked)
        if path == "/v1/models":
            return plain({"data": [{"id": name, "owned_by": "player"} for name in models]})
        if path == "/version":
            return plain({"version": "1.2.3"})
        if path.endswith("/completions"):
            return stream(asked)
        return plain({"detail": "Not Found"}, status="404 Not Found")

    return answer


def plain(content, status="200 OK", *, end="keep", kind="application/json") -> Reply:
    """An answer with a length."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Reply([(0, head(f"Content-Length: {len(body)}", status=status, kind=kind) + body)], end)


def engine(url, *, site=None, model=UNNAMED, **treatment) -> OpenAIEngine:
    """An engine that neither calibrates nor asks for another scheduling class."""
    treatment = {"calibrate": False, "realtime": False, **treatment}
    choice = EngineChoice("http://player", "url", treatment, "", url)
    return OpenAIEngine(EngineSpec(choice, model, {}), site or Site(connect_timeout=20, read_timeout=20))


def requests(number, *, start=0, length=4):
    return tuple(Request(f"r{index}", (5, 6, 7, 8), length) for index in range(start, start + number))


async def carried(client, number, *, at_once=None, start=0, **offer):
    """Traces of so many requests."""
    asked = requests(number, start=start)
    await client.prepare(asked, at_once)
    return await client.carry(Offer(asked, **{"read_timeout_ns": 20_000 * MS, **offer}))
