"""Keys, passwords and queries are sent where they belong, and told nowhere, whatever the server repeats."""

import asyncio
import base64
import json
import logging

import pytest

from pytest_llmperf.engines.openai.address import Address, Secrets
from pytest_llmperf.engines.openai.inquiry import Inquiry
from pytest_llmperf.engines.openai.load.worker import Prepare
from pytest_llmperf.errors import EngineError, OptionError
from pytest_llmperf.trace import RepeatTrace, dump_repeat

from .loads import carried, engine, good, openai, plain
from .player import Player, Reply

pytestmark = pytest.mark.timeout(60)

KEY = "sk-verysecretkey-0123456789"


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("LLMPERF_API_KEY", KEY)


def use(client):
    """Every text that opening and a load give."""

    async def main():
        try:
            info = await client.open()
            await client.open_account()
            traces = await carried(client, 2)
            account = await client.close_account()
            return [
                repr(info),
                dump_repeat(RepeatTrace(0, 0, "batch", tuple(traces))),
                repr(account),
                *map(repr, traces),
            ]
        finally:
            await client.close()

    return asyncio.run(main())


def echo(asked, status) -> Reply:
    """All that the client said, said back."""
    return plain({"error": {"message": f"Incorrect: {asked.head}"}}, status)


def test_the_key_is_sent_and_stays_hidden(key, caplog):
    caplog.set_level(logging.DEBUG)

    def stream(asked):
        measured = json.loads(asked.body)["prompt"] == [5, 6, 7, 8]
        return echo(asked, "500 Internal Server Error") if measured else good()

    with Player(openai(stream)) as player:
        client = engine(player.url)
        told = [*use(client), repr(client), repr(vars(client)["_inquiry"]), repr(client._address), caplog.text]
    assert {a.header("Authorization") for a in player.asked} == {f"Bearer {KEY}"}
    assert any("Incorrect" in text for text in told)
    assert not any(KEY in text for text in told)
    assert KEY not in repr(Prepare({1: player.asked[-1].head.encode()}, 1))


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden", "400 Bad Request"])
def test_a_refusal_that_repeats_the_key(key, status):
    with Player(openai(lambda asked: echo(asked, status))) as player, pytest.raises(EngineError) as refused:
        use(engine(player.url))
    assert KEY not in str(refused.value)
    assert KEY not in repr(refused.value)
    assert KEY[:10] not in str(refused.value)
    if not status.startswith("400"):
        assert "LLMPERF_API_KEY" in str(refused.value)


@pytest.mark.parametrize("before", range(270, 300))
def test_a_key_whose_end_is_cut_off(key, before):
    message = ("x" * before + " " + KEY)[:300]
    hidden = engine("http://localhost:1")._secrets.hide(f"HTTP 401: {message}")
    assert KEY[:8] not in hidden


def test_names_that_repeat_the_key(key):
    models = {"data": [{"id": KEY, "owned_by": KEY}]}
    paths = {"/v1/models": lambda _: plain(models), "/version": lambda _: plain({"version": KEY})}
    with Player(openai(**paths)) as player:
        told = use(engine(player.url))
    assert json.loads(player.asked[-1].body)["model"] == KEY
    assert not any(KEY[:10] in text for text in told)


def test_a_server_that_repeats_whatever_comes(key):
    """Not HTTP at all: the beginning of the request is the beginning of the complaint."""

    def stream(asked):
        return Reply([(0, f"{KEY} {asked.head}".encode())], "close")

    with Player(openai(stream)) as player:
        told = use(engine(f"{player.url}/v1/completions?{KEY}"))
    assert any("is not HTTP" in text for text in told)
    assert not any(KEY[:10] in text for text in told)


def test_what_the_url_holds(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.delenv("LLMPERF_API_KEY", raising=False)
    basic = base64.b64encode(b"someuser:pass/w\xc3\xb6rd1").decode()

    def stream(asked):
        measured = json.loads(asked.body)["prompt"] == [5, 6, 7, 8]
        decoded = "pass/wörd1 and top/secret value"
        return plain({"message": f"{decoded} {asked.head}"}, "400 Bad") if measured else good()

    with Player(openai(stream)) as player:
        url = player.url.replace("//", "//someuser:pass%2Fw%C3%B6rd1@") + "/v1?token=top%2Fsecret+value&bare-secret"
        client = engine(url)
        told = [*use(client), repr(client), repr(client._inquiry), repr(client._address), caplog.text]
    assert {a.header("Authorization") for a in player.asked} == {f"Basic {basic}"}
    assert all(a.path.endswith("?token=top%2Fsecret+value&bare-secret") for a in player.asked)
    for secret in ("someuser", "pass%2F", "pass/w", "wörd1", "top%2F", "top/secret", "bare-secret", basic):
        assert not [text for text in told if secret in text], secret
    assert client._address.shown == player.url


def test_a_key_goes_before_the_urls_password(key):
    with Player(openai()) as player:
        use(engine(player.url.replace("//", "//u:p@")))
    assert {a.header("Authorization") for a in player.asked} == {f"Bearer {KEY}"}


@pytest.mark.parametrize("bad", ["abc\ndef-secret", "abc\r\nX: y-secret", "abc\x00", "schlüssel-secret", "tab\tsecret"])
def test_a_key_that_no_header_can_hold(monkeypatch, bad):
    monkeypatch.setattr("os.environ", {"LLMPERF_API_KEY": bad})
    with pytest.raises(OptionError) as refused:
        engine("http://localhost:1")
    assert "LLMPERF_API_KEY" in str(refused.value)
    assert bad not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_another_variable_holds_the_key(monkeypatch):
    monkeypatch.setenv("OTHER_KEY", KEY)
    with Player(openai()) as player:
        use(engine(player.url, api_key_env="OTHER_KEY"))
    assert {a.header("Authorization") for a in player.asked} == {f"Bearer {KEY}"}
    with pytest.raises(OptionError, match="NO_SUCH_KEY is not set"):
        engine(player.url, api_key_env="NO_SUCH_KEY")


@pytest.mark.parametrize("inject", ["\r\nX-Evil: 1", "\n", "\x00", " HTTP/1.1\r\nHost: evil", "\t"])
@pytest.mark.parametrize(
    "where", ["http://localhost:1/v1{}", "http://localhost:1/?a={}", "http://lo{}cal:1", "http://u{}@h"]
)
def test_nothing_is_injected_by_a_url(inject, where):
    with pytest.raises(OptionError):
        Address.parse(where.format(inject))


def test_escapes_in_a_url_stay_escapes():
    with Player(openai(**{"/a%0D%0AX-Evil:%201/v1/models": lambda _: plain({})})) as player:
        address = Address.parse(f"{player.url}/a%0D%0AX-Evil:%201?b=%0d%0aX-Evil:%202")
        Inquiry(address, {}, None, 5).text(f"{address.base}/models")
    assert player.asked[0].header("X-Evil") is None
    assert "\r\n" not in player.asked[0].path


def test_hiding():
    secrets = Secrets(("0123456789abcdef", "short", "abc"))
    assert secrets.hide("0123456789abcdef") == "***"
    assert secrets.hide("it was 0123456789ab: no") == "it was ***: no"
    assert secrets.hide("0123456 is too little to tell") == "0123456 is too little to tell"
    assert secrets.hide("0123456789abcdef0123456789abcdef and 01234567") == "****** and ***"
    assert secrets.hide("short abc") == "*** abc"
    assert Secrets(("a/b?c d",)).hide("a%2Fb%3Fc%20d") == "***"
    assert "short" not in repr(secrets)
