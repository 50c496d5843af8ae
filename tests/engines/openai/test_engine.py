"""The engine as the runner uses it: open, prepare, carry, the books, close."""

import asyncio
import json
import os
from dataclasses import replace
from importlib.util import find_spec

import psutil
import pytest

from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.openai.load.workers import Workers
from pytest_llmperf.errors import EngineError, OptionError

from .loads import (
    ANSWER,
    CLOCKS_NS,
    MS,
    UNNAMED,
    carried,
    engine,
    good,
    openai,
    plain,
    requests,
    steps,
)  # fmt: skip
from .player import Player, Reply
from .served import DONE, event, frame, text, usage

pytestmark = pytest.mark.timeout(90)


def run(client, work=None):
    """What ``open`` tells, and what ``work`` returns."""

    async def main():
        try:
            info = await client.open()
            return info, None if work is None else await work(client)
        finally:
            await client.close()
            await client.close()

    result = asyncio.run(main())
    assert psutil.Process().children() == []
    return result


def test_a_load_from_end_to_end():
    async def work(client):
        await client.open_account()
        traces = await carried(client, 7, at_once=2, lanes=2)
        return traces, await client.close_account(), client.disturbances()

    with Player(openai()) as player:
        info, (traces, account, disturbances) = run(engine(player.url), work)
        player.wait(lambda p: p.in_flight == 0)
    assert (info.kind, info.model, info.version, info.simulated) == ("openai", "m", "player 1.2.3", False)
    assert info.args["url"] == player.url
    assert info.args["request"] == "completions (ignore_eos, usage with each chunk)"
    assert info.treatment == {"calibrate": False, "realtime": False}
    for trace in traces:
        assert trace.completed
        assert (trace.asked_input, trace.asked_output) == (4, 4)
        assert (trace.input_tokens, trace.output_tokens, trace.token_source) == (7, 2, "server")
        assert trace.impossible() is None
    assert account.client.requests == 7
    assert account.client.output_tokens == 14
    assert (account.client.workers, account.client.retried, account.client.calibration) == (1, 0, None)
    assert account.client.lateness_p99 >= account.client.lateness_p50 >= 0
    assert account.server is None
    assert disturbances == []


def test_what_is_asked_for():
    with Player(openai(models=('a "quoted" modèl\n',))) as player:
        run(engine(player.url), lambda client: carried(client, 1))
    asked = [a for a in player.asked if a.path == "/v1/completions"][-1]
    body = json.loads(asked.body)
    assert body["model"] == 'a "quoted" modèl\n'
    assert body["prompt"] == [5, 6, 7, 8]
    assert (body["max_tokens"], body["temperature"], body["stream"], body["ignore_eos"]) == (4, 0, True, True)
    assert asked.header("Host") == f"127.0.0.1:{player.port}"
    assert asked.header("Content-Type") == "application/json"
    assert asked.header("Authorization") is None
    names = [a.header("X-Request-Id") for a in player.asked if a.path == "/v1/completions"]
    assert len(set(names)) == len(names)


def test_sampling_is_handed_on_but_not_over_what_the_load_needs():
    async def work(client):
        request = Request(
            "r", (1, 2), 3, sampling={"temperature": 0.7, "top_p": 0.5, "max_tokens": 99, "stream": False}
        )
        await client.prepare([request], 1)
        return await client.carry(Offer((request,)))

    with Player(openai()) as player:
        run(engine(player.url), work)
    body = json.loads(player.asked[-1].body)
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["stream"]) == (0.7, 0.5, 3, True)


def test_due_times_and_failures_are_in_the_traces():
    def stream(asked):
        prompt = json.loads(asked.body)["prompt"]
        return plain({"detail": "no"}, "500 Internal Server Error") if prompt == [6] else good()

    async def work(client):
        asked = [Request(f"r{n}", (n,), 4) for n in (5, 6, 7)]
        await client.prepare(asked, None)
        start = client.clock.now() + 5 * MS
        due = tuple(start + n * MS for n in range(3))
        return due, await client.carry(Offer(tuple(asked), due))

    with Player(openai(stream)) as player:
        _, (due, traces) = run(engine(player.url), work)
    assert tuple(t.due_ns for t in traces) == due
    assert [t.error for t in traces] == [None, "HTTP 500: no", None]
    assert all(t.due_ns <= t.sent_ns for t in traces)


@pytest.mark.parametrize("stamps", ["kernel", "user"])
def test_where_times_come_from(stamps):
    with Player(openai(lambda _: Reply(steps(ANSWER, 2)))) as player:
        _, traces = run(engine(player.url, stamps=stamps), lambda client: carried(client, 3, at_once=3))
    sent = [a.sent for a in player.asked if a.path == "/v1/completions"][-3:]
    allowed = ("user",) if stamps == "user" else ("kernel", "mixed", "user")
    assert all(t.time_source in allowed for t in traces)
    for index in range(2):
        earliest = min(times[index + 1] for times in sent)
        assert all(t.received_ns[index] >= earliest - CLOCKS_NS for t in traces)


def test_workers_that_are_asked_for():
    async def work(client):
        await client.open_account()
        traces = await carried(client, 20, at_once=6, lanes=6)
        return traces, await client.close_account()

    with Player(openai()) as player:
        _, (traces, account) = run(engine(player.url, workers=3), work)
    assert account.client.workers == 3
    assert all(t.completed for t in traces)
    assert player.peak <= 6
    assert len([a for a in player.asked if json.loads(a.body or b"{}").get("prompt") == [5, 6, 7, 8]]) == 20


@pytest.mark.parametrize(("share", "workers"), [(0.1, [1, 1, 1]), (0.9, [1, 2, 4])])
def test_a_busy_worker_gets_company(share, workers, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)))
    carry = Workers.carry

    async def busy(self, *args):
        answers = await carry(self, *args)
        self.statistics = [replace(one, cpu_ns=round(share * one.wall_ns)) for one in self.statistics]
        return answers

    monkeypatch.setattr(Workers, "carry", busy)

    async def work(client):
        counts = []
        for load in range(3):
            assert all(t.completed for t in await carried(client, 8, at_once=8, start=8 * load))
            counts.append(client._workers.count)
        return counts

    with Player(openai()) as player:
        assert run(engine(player.url), work)[1] == workers


def test_a_share_that_was_high_once_counts_once(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(9)))
    shares = iter([0.9, 0.2, 0.2])
    carry = Workers.carry

    async def busy(self, *args):
        answers = await carry(self, *args)
        if len(args[0]) == 8:
            share = next(shares)
            self.statistics = [replace(one, cpu_ns=round(share * one.wall_ns)) for one in self.statistics]
        return answers

    monkeypatch.setattr(Workers, "carry", busy)

    async def work(client):
        for load in range(3):
            await carried(client, 8, at_once=8, start=8 * load)
        return client._workers.count

    with Player(openai()) as player:
        assert run(engine(player.url), work)[1] == 2


def test_a_cancelled_load_leaves_no_process_and_no_connection():
    def stream(asked):
        return Reply((), "hang") if json.loads(asked.body)["prompt"] == [5, 6, 7, 8] else good()

    async def work(client):
        load = asyncio.ensure_future(carried(client, 3))
        await asyncio.to_thread(player.wait, lambda p: sum(b"[5,6,7,8]" in a.body for a in p.asked) == 3)
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        assert psutil.Process().children() == []

    with Player(openai(stream)) as player:
        run(engine(player.url), work)
        player.wait(lambda p: p.in_flight == 0)


def test_a_server_that_is_not_there():
    with Player(good) as player:
        player.refuse()
        with pytest.raises(EngineError, match=r"No server accepts connections at .*: Connection refused\. Start"):
            run(engine(player.url))


def test_a_server_that_refuses_every_request():
    words = r"refuses every request: HTTP 404: who are you\. Check the URL"
    with (
        Player(lambda _: plain({"error": "who are you"}, "404 Not Found")) as player,
        pytest.raises(EngineError, match=words),
    ):
        run(engine(player.url))
    assert {a.path for a in player.asked} == {"/v1/models", "/v1/completions", "/v1/chat/completions"}


def test_a_server_that_dies_in_the_middle_of_a_load_fails_its_requests():
    async def work(client):
        asked = requests(3)
        await client.prepare(asked, 3)
        return await client.carry(Offer(asked, read_timeout_ns=20_000 * MS))

    def stream(asked):
        if json.loads(asked.body)["prompt"] != [5, 6, 7, 8]:
            return good()
        # From now on it takes no connection; of an answer that has begun the rest is lost.
        return Reply(steps(ANSWER[:1]), "reset", gate=player.refuse)

    with Player(openai(stream)) as player:
        _, traces = run(engine(player.url), work)
    errors = [trace.error for trace in traces]
    assert all(error.startswith(("connection lost", "connection refused")) for error in errors)
    assert any(error.startswith("connection lost") for error in errors)


def test_a_chat_server():
    def stream(asked):
        body = json.loads(asked.body)
        if "ignore_eos" in body:
            return plain(
                {"error": {"message": "Unrecognized request argument supplied: ignore_eos"}}, "400 Bad Request"
            )
        said = [event({"choices": [{"index": 0, "delta": {"content": t}}]}) for t in (" a", " b", " c")]
        words = len(body["messages"][0]["content"].split())
        return Reply(steps(frame([*said, event(usage(3, prompt=words + 5)), DONE], "chunked")))

    with Player(openai(stream)) as player:
        info, traces = run(engine(f"{player.url}/v1/chat/completions"), lambda client: carried(client, 2))
    assert info.args["request"] == "chat (usage with each chunk)"
    assert [t.output_tokens for t in traces] == [3, 3]
    # Four tokens were asked for, the template adds five: no fewer than one word is left.
    assert {len(json.loads(a.body)["messages"][0]["content"].split()) for a in player.asked[-2:]} == {1}
    assert [t.input_tokens for t in traces] == [6, 6]


def test_a_server_without_a_tokenizer_tells_token_ids():
    def stream(asked):
        ids = {"token_ids": [1, 2]} if json.loads(asked.body).get("return_token_ids") else {}
        return Reply(steps(frame([event(text("", **ids)), event(usage(2)), DONE], "chunked")))

    with Player(openai(stream)) as player:
        info, traces = run(engine(player.url), lambda client: carried(client, 1))
    assert "token ids" in info.args["request"]
    assert (traces[0].tokens, traces[0].chunk_tokens, traces[0].error) == ((2,), "told", None)


def test_the_model_that_was_asked_for_is_not_there():
    model = replace(UNNAMED, name="c", location="c")
    with (
        Player(openai(models=("a", "b"))) as player,
        pytest.raises(OptionError, match=r"does not serve c\. It serves: a, b"),
    ):
        run(engine(player.url, model=model))


def test_metrics_are_read_where_there_are_some():
    lines = 'vllm:num_requests_running{model_name="m"} 3.0\nvllm:num_requests_waiting{model_name="m"} 2.0\n'

    def metrics(_):
        return plain(lines.encode(), kind="text/plain")

    def looks(player):
        return sum(a.path == "/metrics" for a in player.asked)

    def stream(asked):
        warming_up = json.loads(asked.body)["prompt"] == [5, 6, 7, 8] and looks(player) < 2
        # When it is asked a second time, the first answer was taken in.
        return Reply(good().steps, gate=(lambda: player.wait(lambda p: looks(p) >= 2)) if warming_up else None)

    async def work(client):
        await carried(client, 2)
        await client.open_account()
        before = looks(player)
        await carried(client, 2, start=2)
        assert looks(player) == before  # the measurement is not disturbed
        return await client.close_account()

    with Player(openai(stream, **{"/metrics": metrics})) as player:
        _, account = run(engine(player.url), work)
    assert (account.most_running, account.most_waiting) == (3, 2)


def test_metrics_that_hang_or_are_none():
    async def work(client):
        await client.open_account()
        traces = await carried(client, 1)
        return traces, await client.close_account()

    for answer in (lambda _: plain(b"\xff{{{", kind="text/plain"), lambda _: Reply((), "close")):
        with Player(openai(**{"/metrics": answer})) as player:
            _, (traces, account) = run(engine(player.url), work)
        assert traces[0].completed
        assert account.server is None


@pytest.mark.skipif(find_spec("tokenizers") is None, reason="tokenizers is not installed")
def test_a_tokenizer_that_cannot_be_read_costs_nothing(tmp_path):
    (tmp_path / "tokenizer.json").write_text("{")
    parts = [event(text(" a")), event({"choices": [{"index": 0, "text": " b", "finish_reason": "stop"}]}), DONE]
    with Player(openai(lambda _: Reply(steps(frame(parts, "chunked"))))) as player:
        model = replace(UNNAMED, name="m", location=str(tmp_path))
        _, traces = run(engine(player.url, model=model), lambda client: carried(client, 1))
    assert (traces[0].output_tokens, traces[0].token_source, traces[0].error) == (2, "counted", None)
