"""Questions to servers that do not answer as they should."""

import pytest

from pytest_llmperf.engines.openai.address import Address
from pytest_llmperf.engines.openai.inquiry import Inquiry

from .loads import good, plain
from .player import Player, Reply
from .served import frame

pytestmark = pytest.mark.timeout(60)

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def ask(player, *, timeout=20.0, path="/v1/models"):
    inquiry = Inquiry(Address.parse(player.url), {"Authorization": "Bearer k"}, None, timeout)
    return inquiry.text(path), inquiry.json(path)


def test_an_answer():
    with Player(lambda _: plain({"a": ["ä"]})) as player:
        assert ask(player)[1] == {"a": ["ä"]}
    assert player.asked[0].header("Authorization") == "Bearer k"
    assert player.asked[0].path == "/v1/models"


@pytest.mark.parametrize(
    ("content", "text", "value"),
    [
        (b"", "", None),
        (b"\xff\xfe", "\ufffd\ufffd", None),
        (b"[" * 100_000, "[" * 100_000, None),
        (b"NaN", "NaN", pytest.approx(float("nan"), nan_ok=True)),
        (b"{}", "{}", {}),
    ],
)
def test_odd_content(content, text, value):
    with Player(lambda _: plain(content)) as player:
        assert ask(player) == (text, value)


@pytest.mark.parametrize(
    "reply",
    [
        plain({}, "404 Not Found"),
        plain({}, "302 Found"),
        plain({}, "204 No Content"),
        Reply((), "close"),
        Reply((), "reset"),
        Reply([(0, b"SSH-2.0\r\n")], "close"),
        Reply([(0, b"\x00" * 100_000)], "close"),
        Reply([(0, HEAD + b"Content-Length: 10\r\n\r\n{")], "close"),
        Reply([(0, HEAD + b"Content-Length: 10\r\n\r\n[1, 2]")], "close"),
        Reply([(0, HEAD + b"Content-Length: nine\r\n\r\n")], "reset"),
        Reply([(0, HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")], "close"),
        Reply([(0, HEAD + b"X: y\r\n" * 200 + b"\r\n")], "close"),
        Reply([(0, b"HTTP/1.1 200 " + b"x" * 70_000)], "close"),
    ],
)
def test_servers_that_give_no_answer(reply):
    with Player(lambda _: reply) as player:
        text, value = ask(player)
    assert value is None
    assert text in (None, "")


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
@pytest.mark.parametrize(("beyond", "taken"), [(0, True), (1, False), (1000, False)])
def test_an_answer_beyond_the_limit_is_none(monkeypatch, framing, beyond, taken):
    monkeypatch.setattr("pytest_llmperf.engines.openai.inquiry._LARGEST", 5000)
    parts = [b"1" * 1000] * 5 + ([b"1" * beyond] if beyond else [])
    with Player(lambda _: Reply([(0, part) for part in frame(parts, framing)], "close")) as player:
        assert ask(player)[0] == ("1" * 5000 if taken else None)


@pytest.mark.parametrize("framing", ["chunked", "close", "length"])
def test_no_more_is_read_than_the_limit(framing):
    part = b"vllm:num_requests_running 1.0\n" * 35_000
    reply = Reply([(0, written) for written in frame([part] * 100, framing)], "close")
    with Player(lambda _: reply) as player:
        assert Inquiry(Address.parse(player.url), {}, None, 20.0).text("/metrics") is None
        player.wait(lambda p: p.gone == 1)  # the client broke it off
    assert len(player.asked[0].sent) < 40


def test_interim_answers():
    with Player(lambda _: Reply([(0, b"HTTP/1.1 100 Continue\r\n\r\n"), *plain({"a": 1}).steps])) as player:
        assert ask(player)[1] == {"a": 1}


def test_a_server_that_refuses_connections():
    with Player(good) as player:
        player.refuse()
        assert ask(player) == (None, None)


@pytest.mark.parametrize("reads", ["all", "nothing"])
def test_a_server_that_hangs(reads):
    with Player(lambda _: Reply((), "hang"), reads=reads) as player:
        assert ask(player, timeout=0.2) == (None, None)


@pytest.mark.parametrize(
    "head", [b"", HEAD + b"Content-Length: 9999\r\n\r\n", HEAD + b"\r\n", b"HTTP/1.1 200 OK\r\nX: "]
)
def test_a_server_that_never_comes_to_an_end(head):
    drops = [(0, head), *[(20, b"x")] * 3000]
    with Player(lambda _: Reply(drops)) as player:
        assert ask(player, timeout=0.3) == (None, None)


def test_a_path_that_cannot_be_asked_for():
    with Player(good) as player:
        assert ask(player, path="/a b\r\n") == (None, None)
        assert ask(player, path="/ä") == (None, None)
