from __future__ import annotations

import pytest

from pytest_llmperf.engines.openai.decoding.sse import Event, events


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b"", []),
        (b"\n\n\n", []),
        (b"data: a\n\n", [(b"", b"a", 9, True)]),
        (b"data:a\n\n", [(b"", b"a", 8, True)]),
        (b"data:  a \n\n", [(b"", b" a ", 11, True)]),
        (b"data:\n\n", [(b"", b"", 7, True)]),
        (b"data: a\r\n\r\n", [(b"", b"a", 11, True)]),
        (b"data: a\r\r", [(b"", b"a", 9, True)]),
        (b"data: a\r\n\n", [(b"", b"a", 10, True)]),
        (b"data: a\n\r\n", [(b"", b"a", 10, True)]),
        (b"data: a\r\n\r", [(b"", b"a", 10, True)]),
        (b"data: a\r\n", [(b"", b"a", 9, False)]),
        (b"data: a", [(b"", b"a", 7, False)]),
        (b"data: a\n\n\n", [(b"", b"a", 9, True)]),
        (b"data: a\ndata:b\n\n", [(b"", b"a\nb", 16, True)]),
        (b"data: a\n: ping\n: x\nid: 7\nretry: 3\n\n", [(b"", b"a", 35, True)]),
        (b": data: a\n\n data: a\n\nDATA: a\n\ndata\n\ndatab: a\n\n", []),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"", b"a", 12, True)]),
        (b"event: x\ndata: a\n\ndata: b\n\n", [(b"x", b"a", 18, True), (b"", b"b", 27, True)]),
        (b"event: x\n\ndata: b\n\n", [(b"", b"b", 19, True)]),
        (b"event: error\n\n", [(b"error", b"", 14, True)]),
        (b"event: error", [(b"error", b"", 12, False)]),
        (b"error: a\n\n", [(b"error", b"a", 10, True)]),
        (b"data: \xe2\x80\xa8\x0b\x0c\x1c\x85\n\n", [(b"", b"\xe2\x80\xa8\x0b\x0c\x1c\x85", 15, True)]),
    ],
    ids=repr,
)
def test_events_as_the_standard_has_them(body, found):
    assert list(events(body)) == [Event(*event) for event in found]
