"""vLLM's server on a free port: another is tried when it was taken, and errors bear vLLM's remedies."""

import asyncio
import sys
import urllib.request

import pytest

from pytest_llmperf.engines.server import server as module
from pytest_llmperf.engines.server.server import VllmServer, free_port
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve

SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    log_message = lambda self, *_: None
print("torch.compile takes 3 s in total", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
TAKEN = "raise OSError(98, 'Address already in use')"


@pytest.fixture
def serve(monkeypatch, tmp_path):
    def serve(*codes):
        """A server whose n-th start runs the n-th program, the last one for ever."""
        left = list(codes)

        def command(_, port):
            return [sys.executable, "-c", left.pop(0) if len(left) > 1 else left[0], str(port)]

        monkeypatch.setattr(module, "command", command)
        choice = EngineChoice("serve", "cpu", {}, "")
        return VllmServer(EngineSpec(choice, resolve("tiny-llama"), {}), str(tmp_path / "server.log"))

    return serve


def outcome(server):
    async def main():
        try:
            url = await server.start(timeout=60)
            with await asyncio.to_thread(urllib.request.urlopen, f"{url}/health") as answer:
                assert answer.status == 200
            assert not server.died().is_set()
            return server.disturbances()
        finally:
            await server.stop()
            await server.stop()

    return asyncio.run(main())


def test_it_serves_at_the_address_that_it_tells_and_a_start_disturbs_nothing(serve):
    assert outcome(serve(SERVER)) == []


def test_another_port_is_tried_when_it_was_taken_meanwhile(serve):
    assert outcome(serve(TAKEN, TAKEN, SERVER)) == []


def test_it_is_not_tried_for_ever(serve):
    with pytest.raises(EngineError, match=r"vLLM's server did not start with the model tiny-llama: .*in use"):
        outcome(serve(TAKEN))


@pytest.mark.parametrize(
    ("code", "cause", "remedy"),
    [
        ("raise ValueError('Available memory 1 GiB is too little.')", "ValueError: Available memory 1 GiB is too",
         "VLLM_CPU_KVCACHE_SPACE"),
        ("raise ValueError('max_model_len (9) is greater than 4')", "(9) is greater", "Lower max_model_len"),
        ("import sys; print('api_server.py: error: unrecognized arguments: --x'); sys.exit(2)", "--x", "server.log"),
        ("raise RuntimeError('Engine core initialization failed. See root cause above.')", "without an error message",
         "server.log"),
    ],
)  # fmt: skip
def test_a_start_that_fails_gives_the_root_cause_and_its_remedy(serve, code, cause, remedy):
    with pytest.raises(EngineError) as caught:
        outcome(serve(code, SERVER))
    assert caught.value.problem.startswith("vLLM's server did not start with the model tiny-llama: ")
    assert cause in caught.value.problem
    assert remedy in caught.value.remedy


def test_before_it_is_started_there_is_nothing_to_ask(serve):
    server = serve(SERVER)
    with pytest.raises(EngineError, match="not started"):
        server.died()
    asyncio.run(server.stop())


def test_free_ports_differ_while_they_are_in_use():
    assert 1024 < free_port() < 65536
