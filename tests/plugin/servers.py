"""A small server that speaks OpenAI's protocol, in a thread: it answers what it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeServer:
    """Streams as many tokens as asked, one event each.

    Args:
        answer: Called with the number of the request (from 0, the probe included) before it is answered; may return
            ``"stall"``, ``"error"`` (a 500), ``"refuse"`` (401, repeating the key) or ``None`` (a good answer).
        models: Answer to ``/v1/models``; ``None``: not found.
        whole: Called with a request that asks for no stream, and how many such there were before it; what it returns is
            the answer, ``None`` refuses (a 400). Such requests are no load, and are kept apart.
        metrics: Called for each page of ``/metrics`` with the requests and tokens served so far; ``None``: not found.
    """

    def __init__(
        self,
        answer: Callable[[int], str | None] = lambda _: None,
        *,
        models: dict | None = None,
        whole: Callable[[dict, int], dict | None] = lambda *_: None,
        metrics: Callable[[int, int], str] | None = None,
    ) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.whole: list[dict] = []
        self.tokens = 0
        self.answered = 0
        self.over = threading.Event()
        self.stopped = False
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Otherwise tokens wait for one another, up to 40 ms, and come in one read.
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                text = None
                if self.path.startswith("/v1/models") and models is not None:
                    text = json.dumps(models)
                elif self.path == "/metrics" and metrics is not None:
                    text = metrics(outer.answered, outer.tokens)
                body = (text or "").encode()
                self.send_response(404 if text is None else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not body.get("stream"):
                    outer.whole.append(body)
                    content = whole(body, len(outer.whole) - 1)
                    told = json.dumps({"error": {"message": "no such thing"}} if content is None else content).encode()
                    self.send_response(400 if content is None else 200)
                    self.send_header("Content-Length", str(len(told)))
                    self.end_headers()
                    self.wfile.write(told)
                    return
                with lock:
                    number = len(outer.requests)
                    outer.requests.append(body)
                    outer.headers.append(dict(self.headers))
                what = answer(number)
                if what in ("error", "refuse"):
                    told = json.dumps({"error": {"message": f"no: {self.headers.get('Authorization')}"}}).encode()
                    self.send_response(500 if what == "error" else 401)
                    self.send_header("Content-Length", str(len(told)))
                    self.end_headers()
                    self.wfile.write(told)
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                length = body.get("max_tokens") or body.get("max_completion_tokens")
                prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"].split()
                for token in range(length):
                    field = {"text": " t"} if "prompt" in body else {"delta": {"content": " t"}}
                    usage = {"prompt_tokens": len(prompt), "completion_tokens": token + 1}
                    self._event({"choices": [{"index": 0, **field, "finish_reason": None}], "usage": usage})
                    if what == "stall" and token == 0:
                        outer.over.wait()
                        return
                    time.sleep(0.001)
                self._chunk(b"data: [DONE]\n\n")
                self._chunk(b"")
                self.close_connection = outer.stopped
                with lock:
                    outer.answered += 1
                    outer.tokens += length

            def _event(self, payload: dict) -> None:
                self._chunk(b"data: " + json.dumps(payload).encode() + b"\n\n")

            def _chunk(self, data: bytes) -> None:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                self.wfile.flush()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeServer:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Accept no further connection; close those that are open once they have been answered."""
        self.stopped = True
        self._server.socket.close()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        if not self.stopped:
            self._server.shutdown()
        self._server.server_close()
