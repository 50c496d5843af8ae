"""URLs, taken apart without telling what is nobody's business."""

import errno
import os
import socket

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.address import Address, resolve, tls_context
from pytest_llmperf.errors import EngineError, OptionError


@pytest.mark.parametrize(
    ("url", "shown", "base", "root", "endpoint"),
    [
        ("http://h", "http://h:80", "/v1", "", None),
        ("https://h/", "https://h:443", "/v1", "", None),
        ("http://h:8000/v1", "http://h:8000", "/v1", "", None),
        ("http://h:8000/v1/", "http://h:8000", "/v1", "", None),
        ("http://h/api", "http://h:80/api", "/api/v1", "/api", None),
        ("http://h/api/v1", "http://h:80/api", "/api/v1", "/api", None),
        ("http://h/v1/chat/completions", "http://h:80/v1/chat/completions", "/v1", "", "chat"),
        ("http://h/v1/completions/", "http://h:80/v1/completions", "/v1", "", "completions"),
        ("http://h/x/chat/completions", "http://h:80/x/chat/completions", "/x", "/x", "chat"),
        ("http://u:p@H:1/v1?key=secret#part", "http://h:1", "/v1", "", None),
        ("http://[::1]:8000", "http://[::1]:8000", "/v1", "", None),
    ],
)
def test_parts(url, shown, base, root, endpoint):
    address = Address.parse(url)
    assert (address.shown, address.base, address.root, address.endpoint) == (shown, base, root, endpoint)


def test_headers():
    assert Address.parse("http://h:80").host_header == "h"
    assert Address.parse("https://h:80").host_header == "h:80"
    assert Address.parse("http://[::1]:81").host_header == "[::1]:81"
    assert Address.parse("http://h").authorization is None
    assert Address.parse("http://user@h").authorization == "Basic dXNlcjo="
    assert Address.parse("http://us%40er:p%3Aw@h").authorization == "Basic dXNAZXI6cDp3"


@pytest.mark.parametrize(
    ("url", "near"),
    [("http://127.0.0.1", True), ("http://127.9.9.9", True), ("http://[::1]", True), ("http://LOCALHOST", True),
     ("http://10.0.0.1", False), ("http://localhost.example", False)],
)  # fmt: skip
def test_servers_on_this_machine(url, near):
    assert Address.parse(url).is_loopback is near


@pytest.mark.parametrize(
    "url",
    ["", "h:80", "ftp://h", "http://", "http:///v1", "http://:80", "http://u:p@", "http://h:0", "http://h:65536",
     "http://h:port", "http://h:-1", "http://[::1", "http://[x]", "http://hö", "http://h h", "file:///etc/passwd",
     "http://h\n", " http://h", "\x00http://h"],
)  # fmt: skip
def test_what_is_no_address(url):
    with pytest.raises(OptionError, match="--llmperf-engine: the URL"):
        Address.parse(url)


@pytest.mark.parametrize(
    "url",
    ["http://user:hunter2/half@host", "http://user:hunter2#half@host", "http://user:hunter2?half@host:1",
     "http://user:hunter2@ho\u2100st", "http://user:hunter2@[::1", "http://user:hunter2@h:x", "http://hunter2:@",
     "http://user:hunter2@host:99999"],
)  # fmt: skip
def test_a_broken_url_does_not_tell_its_password(url):
    with pytest.raises(OptionError) as error:
        Address.parse(url)
    assert "hunter2" not in str(error.value)


ODD = st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30)
SECRET = st.text("QXZ0123456789", min_size=6, max_size=12).map(lambda text: f"QQ{text}")


@given(st.text() | st.builds(str.__add__, st.sampled_from(["http://", "https://", "http://h/", "http://u:p@"]), ODD))
@example("http://[::1]]")
@example("http://a]b[/")
@example("https://@:@/")
@example("http://h:\u0661")
def test_any_text_is_an_address_or_an_option_error(text):
    try:
        address = Address.parse(text)
    except OptionError:
        return
    assert address.host
    assert 0 < address.port < 65536
    assert address.base.startswith("/")
    for line in (address.shown, address.host_header, address.base, address.query, address.authorization or ""):
        assert line.isascii()
        assert line.isprintable()
        assert address.authorization is line or " " not in line


@given(SECRET, SECRET, SECRET, st.sampled_from(["", "/v1", "/x/v1/chat/completions", "/completions"]), st.booleans())
def test_what_is_shown_holds_no_secret(user, password, query, path, named):
    assume(len({user, password, query}) == 3)
    address = Address.parse(f"http://{user}:{password}@host:8000{path}?{'key=' if named else ''}{query}")
    for text in (address.shown, repr(address), str(address), address.host_header):
        assert not any(secret in text for secret in (user, password, query))
    assert address.secrets.hide(f"{user} {password} {query}") == "*** *** ***"


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".example", "-", "no-such-host.invalid", "a%00b", ".x"])
def test_names_that_do_not_resolve(host):
    with pytest.raises(EngineError, match=r"server's name .* does not resolve \("):
        resolve(Address.parse(f"http://{host}:1"), timeout=5)


@pytest.mark.parametrize("listening", [True, False])
def test_a_family_that_this_kernel_does_not_have(monkeypatch, listening):
    class Lacking(socket.socket):
        def __init__(self, family=-1, *rest, **named):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
            super().__init__(family, *rest, **named)

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = server.getsockname()
        found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", where[1], 0, 0))]
        found += [(socket.AF_INET, socket.SOCK_STREAM, 6, "", where)] if listening else []
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        monkeypatch.setattr(socket, "socket", Lacking)
        if listening:
            assert resolve(Address.parse("http://h:1"), timeout=20) == (socket.AF_INET, where)
        else:
            with pytest.raises(EngineError, match=r"http://h:1: Address family not supported by protocol\. Start"):
                resolve(Address.parse("http://h:1"), timeout=20)


def test_certificates(tmp_path):
    with pytest.raises(OptionError, match="holds no certificates"):
        tls_context(str(tmp_path / "none"), verify=True)
    with pytest.raises(OptionError, match="holds no certificates"):
        tls_context(str(tmp_path), verify=True)
    assert not tls_context(None, verify=False).check_hostname
    assert tls_context(None, verify=True).check_hostname
