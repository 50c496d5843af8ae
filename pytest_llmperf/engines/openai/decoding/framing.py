"""HTTP/1 responses: which bytes of a connection are the answer's body, and which read brought them.

httptools does the parsing, fed read by read. It has no notion of the connection's end, so a body that only the end
of the connection delimits is never complete here; :attr:`Message.framed` tells whether that has to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_llmperf.engines.openai.decoding.words import tidy

__all__ = ["Message", "unframe"]


@dataclass(frozen=True, slots=True)
class Message:
    """One response, without its framing.

    Attributes:
        status: The status code; ``None`` when the head never was complete.
        phrase: The words beside the status code.
        headers: By name in lower case; of a repeated one the last.
        body: All bytes of the body that came.
        ends: Of each read, how many bytes of the body had come with it and those before it.
        trailed: Of each read, whether it holds framing after its last byte of the body that is not that chunk's own
            line end: the beginning of another chunk, or the terminator.
        framed: Whether framing tells the body's end (chunks, a length); otherwise the connection's end does.
        complete: Whether framing says that all has come.
        broken: Why the bytes are not HTTP, or ``None``.
    """

    status: int | None
    phrase: str
    headers: dict[str, str]
    body: bytes
    ends: list[int]
    trailed: list[bool]
    framed: bool
    complete: bool
    broken: str | None


def unframe(reads: Sequence[bytes]) -> Message:
    """The final response in these reads; interim ones (1xx) are skipped, whatever follows it is ignored."""
    # Imported here: nobody who measures no server has to load it.
    from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

    response = _Response()
    parser = HttpResponseParser(response)
    response.status_code = parser.get_status_code
    ends, trailed = [], []
    broken = None
    for read in reads:
        if not response.complete and broken is None:
            try:
                parser.feed_data(read)
            except (HttpParserError, HttpParserUpgrade) as error:
                # What follows a complete message, or an upgrade that nobody asked for, is not ours to judge.
                broken = None if response.complete else str(error)
        ends.append(response.length)
        trailed.append(response.trails(read))
    response.status_code = int  # parser and response refer to each other: let both go without the garbage collector
    if broken is not None:
        start = tidy(b"".join(reads)[:40].decode("latin-1"))
        where = f"what the server sent is not HTTP ({start!r})" if response.status is None else "the HTTP framing broke"
        broken = f"{where}: {broken}"
    return Message(
        status=response.status,
        phrase=response.phrase,
        headers=response.headers,
        body=b"".join(response.pieces),
        ends=ends,
        trailed=trailed,
        framed=response.framed,
        complete=response.complete,
        broken=broken,
    )


class _Response:
    """What httptools calls while it parses."""

    def __init__(self) -> None:
        self.status_code: Callable[[], int] = int
        self.pieces: list[bytes] = []
        self.length = 0
        self._after = ""
        self._start()

    def _start(self) -> None:
        self.status: int | None = None
        self.phrase = ""
        self.headers: dict[str, str] = {}
        self.framed = self.complete = False

    def trails(self, read: bytes) -> bool:
        """Whether a read that ends here holds framing beyond its last chunk's own."""
        return self._after == "header" or (self._after == "chunk" and not read.endswith(b"\n"))

    def on_status(self, phrase: bytes) -> None:
        if not self.complete:
            self.phrase += phrase.decode("latin-1")  # it comes in parts when it is cut

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers come after the head, and are none of ours.
        if self.status is None:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if not self.complete:
            self.status = self.status_code()
            # Another coding than chunked in the last place leaves the end to the connection (RFC 9112, 6.3).
            coding = self.headers.get("transfer-encoding")
            self.framed = "content-length" in self.headers if coding is None else coding.lower().endswith("chunked")

    def on_body(self, piece: bytes) -> None:
        if not self.complete:
            self.pieces.append(piece)
            self.length += len(piece)
            self._after = ""

    def on_chunk_header(self) -> None:
        self._after = "header"

    def on_chunk_complete(self) -> None:
        # The terminator is a chunk too, without a body.
        self._after = self._after or "chunk"

    def on_message_complete(self) -> None:
        if self.status is not None and self.status < 200 and self.status != 101:
            self._start()
        else:
            self.complete = True
