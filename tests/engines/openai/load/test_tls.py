"""TLS and IPv6."""

import asyncio
import socket
import ssl
import subprocess

import pytest

from pytest_llmperf.engines.openai.load.worker import Prepare
from pytest_llmperf.errors import EngineError, OptionError

from ..loads import (
    ANSWER,
    CLOCKS_NS,
    PARTS,
    InThread,
    carried,
    carry,
    engine,
    good,
    one,
    openai,
    opening,
    plain,
    request,
    steps,
)
from ..player import Player, Reply
from ..served import frame

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A file with a certificate for localhost, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/CN=localhost", "-addext", names, "-keyout", folder / "key", "-out",
             folder / "certificate"],
            check=True, capture_output=True,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("there is no openssl here to make a certificate")
    (folder / "both").write_bytes((folder / "certificate").read_bytes() + (folder / "key").read_bytes())
    return str(folder / "both")


@pytest.fixture(params=["TLSv1_2", "TLSv1_3"])
def tls(certificate, request):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[request.param]
    return context


@pytest.fixture
def trust(certificate):
    return {"tls": True, "host": "localhost", "ca_file": certificate}


@pytest.mark.parametrize("ms", [0, 3])
def test_answers_come_through_tls(tls, trust, ms):
    with Player(lambda _: Reply(steps(ANSWER, ms)), tls=tls) as player:
        answers = carry(player, 4, lanes=2, **trust)
    for answer in answers:
        assert (answer.decoded.text, answer.decoded.error) == (" a b", None)
    assert player.accepted == 2
    earliest = min(asked.sent[1] for asked in player.asked)
    assert all(answer.decoded.received_ns[0] >= earliest - CLOCKS_NS for answer in answers)


def test_connections_that_stand_by_survive_session_tickets(tls, trust):
    with Player(good, tls=tls) as player, InThread(opening(player, **trust)) as client:
        assert client.ask(Prepare({}, 3)).connections == 3
        for _ in range(3):
            answers = client.carry([request()] * 3, connections=3).answers
            assert [(a.decoded.error, a.connected_late) for a in answers] == [(None, False)] * 3
    assert player.accepted == 3


@pytest.mark.parametrize("end", ["close", "notify"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_the_connections_end_ends_an_answer(tls, trust, end, framing):
    data = frame(PARTS, framing)
    with Player(lambda _: Reply(steps(data), end), tls=tls) as player:
        answers = carry(player, 3, lanes=1, **trust)
    assert [a.decoded.error for a in answers] == [None] * 3


def test_a_stale_connection_is_tried_again(tls, trust):
    with Player(lambda asked: Reply((), "close") if asked.nth else good(), tls=tls) as player:
        answers = carry(player, 2, lanes=1, **trust)
    assert [a.decoded.error for a in answers] == [None] * 2


def test_large_requests_and_answers(tls, trust):
    words = b": " + b"x" * 300_000 + b"\n\n"
    with Player(lambda _: Reply(steps(frame([words, *PARTS], "chunked"))), tls=tls) as player:
        answer = one(player, request(b"y" * 3_000_000), **trust)
    assert answer.decoded.error is None
    assert player.asked[0].body == b"y" * 3_000_000


def test_a_truncated_answer(tls, trust):
    with Player(lambda _: Reply([*steps(ANSWER[:2]), (20, b"")], "close"), tls=tls) as player:
        answer = one(player, **trust)
    assert answer.decoded.error == "the connection closed before the answer's end, after 1 event"


def test_a_certificate_that_nobody_trusts(tls, trust):
    with Player(good, tls=tls) as player:
        answer = one(player, tls=True, host="localhost")
        assert answer.decoded.error == f"TLS with player:{player.port} failed: CERTIFICATE_VERIFY_FAILED"
        assert one(player, **{**trust, "host": "elsewhere"}).decoded.error.startswith("TLS with")
        assert one(player, tls=True, host="localhost", verify=False).decoded.error is None


def test_a_server_without_tls(trust):
    with Player(good) as player:
        # It takes the client's greeting for the beginning of a request, and waits for more.
        silent = one(player, connect_timeout_ns=300_000_000, **trust)
    with Player(lambda _: Reply([(0, b"HTTP/1.1 400 Bad Request\r\n\r\n")], "close")) as player:
        assert silent.decoded.error.startswith("connect timeout")


async def opened(url, **treatment):
    client = engine(url, **treatment)
    try:
        info = await client.open()
        (trace,) = await carried(client, 1)
        return info, trace
    finally:
        await client.close()


def test_the_engine_trusts_the_file_it_is_given(tls, certificate):
    with Player(openai(), tls=tls) as player:
        info, trace = asyncio.run(opened(player.url, ca_file=certificate))
    assert (info.model, info.version) == ("m", "player 1.2.3")
    assert trace.completed


def test_the_engine_says_that_a_certificate_is_not_trusted(tls):
    with Player(openai(), tls=tls) as player, pytest.raises(EngineError, match=r"CERTIFICATE_VERIFY_FAILED.*ca_file"):
        asyncio.run(opened(player.url))


def test_a_file_without_certificates(tls, tmp_path):
    path = tmp_path / "empty"
    path.write_text("nothing")
    with Player(openai(), tls=tls) as player, pytest.raises(OptionError, match="holds no certificates"):
        asyncio.run(opened(player.url, ca_file=str(path)))


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_ipv6():
    def answer(asked):
        return openai()(asked) if asked.header("Host").startswith("[::1]:") else plain({}, "421 Misdirected")

    with Player(answer, family=socket.AF_INET6) as player:
        info, trace = asyncio.run(opened(player.url))
        assert info.args["url"] == player.url
    assert trace.completed
