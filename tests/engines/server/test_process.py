"""A server's life: small programs that do what real servers do when they fail."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import psutil
import pytest

from pytest_llmperf.engines import processes
from pytest_llmperf.engines.server import process as module
from pytest_llmperf.engines.server.process import ServerProcess
from pytest_llmperf.engines.server.server import free_port
from pytest_llmperf.errors import EngineError

#: Far more than anything here needs; what ends at once must not wait for it.
LONG = 60

HEALTHY = """
import http.server, os, signal, subprocess, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({status})
        self.send_header("Content-Length", "0")
        self.end_headers()
        if self.path == "/die":
            os._exit(7)
    def log_message(self, *arguments):
        print("asked", flush=True)

class Server(http.server.HTTPServer):
    allow_reuse_address = True

def sleeper(code="", **options):
    return subprocess.Popen([sys.executable, "-c", code + "\\nimport time; time.sleep(600)"], **options).pid

def tell(pid):
    print("grandchild", pid, flush=True)

{before}
Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""

IGNORES_SIGTERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
#: In the middle dies at once, and its child has left the session: neither descent nor session tells of it.
DAEMON = (
    "subprocess.run([sys.executable, '-c', 'import subprocess, sys; "
    'print("grandchild", subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], '
    "start_new_session=True).pid, flush=True)'])"
)


def script(before="", status=200):
    return HEALTHY.format(before=before, status=status)


@pytest.fixture
def make(tmp_path):
    made = []

    def make(code, log=True, port=None):
        port = port or free_port()
        path = str(tmp_path / "server.log") if log else None
        server = ServerProcess([sys.executable, "-c", code, str(port)], port=port, log_path=path)
        made.append(server)
        return server

    before = set(psutil.Process().children(recursive=True))
    yield make
    left = [p for p in psutil.Process().children(recursive=True) if p not in before]
    assert left == [], "a process outlived its server"
    assert all(server.log.stream.closed for server in made)


@asynccontextmanager
async def started(server):
    try:
        await server.start(timeout=LONG)
        yield server
    finally:
        await server.stop()


async def refused(server, *, within=LONG):
    """The error with which it does not start."""
    try:
        with pytest.raises(EngineError) as caught:
            await server.start(timeout=within)
    finally:
        await server.stop()
    return caught.value


def grandchildren(server):
    lines = server.log.text().splitlines()
    return [psutil.Process(int(line.split()[1])) for line in lines if line.startswith("grandchild")]


class TestStart:
    def test_it_is_up_when_it_is_healthy(self, make):
        async def main():
            async with started(make(script())) as server:
                assert not server.died().is_set()
                return server

        server = asyncio.run(main())
        assert server.died().is_set()
        assert "asked" in server.log.text()

    @pytest.mark.parametrize(
        ("code", "sentence"),
        [
            ("raise ValueError('no such model.')", "ended with exit status 1: ValueError: no such model."),
            ("import sys; sys.exit(3)", "ended with exit status 3 without a word."),
            ("import sys; print('usage: x'); print('error: no flag'); sys.exit(2)",
             "ended with exit status 2: usage: x / error: no flag."),
            ("pass", "ended with exit status 0 without a word."),
            ("import os; os.kill(os.getpid(), 9)", "ended by the signal SIGKILL without a word."),
            ("import os; print('Loading'); os.abort()", "ended by the signal SIGABRT"),
            ("import time; time.sleep(0.3); raise OSError('late')", "ended with exit status 1: OSError: late."),
        ],
    )  # fmt: skip
    def test_a_server_that_dies_is_told_at_once_with_its_reason(self, make, code, sentence):
        error = asyncio.run(refused(make(code)))
        assert sentence in error.problem
        assert "server.log" in error.remedy

    def test_a_program_that_does_not_exist(self, make):
        server = make("")
        server._command = ["/nonexistent/program"]
        assert "/nonexistent/program" in asyncio.run(refused(server)).problem

    @pytest.mark.parametrize(
        ("code", "said"),
        [
            ("import time; print('Loading weights.', flush=True); time.sleep(600)", "; it said last: Loading weights."),
            ("import time; time.sleep(600)", " and said nothing."),
            (script(status=503), "asked"),
        ],
    )
    def test_a_server_that_never_gets_healthy_is_given_up(self, make, code, said):
        error = asyncio.run(refused(make(code), within=1.5))
        assert "not healthy within 1.5 s" in error.problem
        assert said in error.problem

    def test_a_server_that_accepts_and_is_silent_is_given_up(self, make):
        code = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
        assert "not healthy" in asyncio.run(refused(make(code), within=1)).problem

    def test_another_server_on_the_port_is_not_taken_for_ours(self, make):
        async def main():
            async with started(make(script())) as first:
                return await refused(make(script(), port=first.port))

        error = asyncio.run(main())
        assert "Address already in use" in error.problem

    def test_a_start_that_is_interrupted_leaves_nothing(self, make):
        async def main():
            server = make("import time; time.sleep(600)")
            task = asyncio.create_task(server.start(timeout=LONG))
            await asyncio.sleep(0.2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await server.stop()

        asyncio.run(main())

    def test_without_a_log_to_keep_the_error_points_at_none(self, make):
        server = make("raise ValueError('x')", log=False)
        error = asyncio.run(refused(server))
        assert error.remedy is None
        assert "ValueError: x" in error.problem
        assert not server.log.path.exists()

    def test_an_error_of_an_earlier_run_in_the_same_log_is_not_this_ones(self, make, tmp_path):
        (tmp_path / "server.log").write_text("ValueError: of yesterday\n")
        assert asyncio.run(refused(make("raise KeyError('today')"))).problem.endswith("KeyError: 'today'.")


@pytest.mark.parametrize("pidfd", [True, False])
class TestDeath:
    @pytest.fixture(autouse=True)
    def platform(self, monkeypatch, pidfd):
        if not pidfd:
            monkeypatch.setattr(module, "_end_descriptor", lambda pid: None)
        elif not hasattr(os, "pidfd_open"):
            pytest.skip("this platform has no pidfd")

    def test_it_wakes_whoever_waits(self, make):
        async def main():
            async with started(make(script())) as server:
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /die HTTP/1.0\r\n\r\n")
                async with asyncio.timeout(LONG):
                    await server.died().wait()
                writer.close()
                return server.death()

        assert "ended with exit status 7: asked" in asyncio.run(main()).problem

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
    def test_a_signal_is_named(self, make, number):
        async def main():
            async with started(make(script())) as server:
                os.kill(server._process.pid, number)
                async with asyncio.timeout(LONG):
                    await server.died().wait()
                return server.death(), server

        error, server = asyncio.run(main())
        assert f"by the signal {number.name}" in error.problem
        assert server.death() is error

    def test_it_is_the_same_after_stopping(self, make):
        async def main():
            server = make("import sys; sys.exit(5)", log=False)
            with pytest.raises(EngineError):
                await server.start(timeout=LONG)
            await server.stop()
            return server.death()

        assert "exit status 5" in asyncio.run(main()).problem


class TestStop:
    @pytest.fixture(autouse=True)
    def short_grace(self, monkeypatch):
        monkeypatch.setattr(module, "_GRACE_S", 0.3)
        monkeypatch.setattr(processes, "_GRACE", 0.3)

    @pytest.mark.parametrize(
        "before",
        [
            "",
            IGNORES_SIGTERM,
            "tell(sleeper())",
            "tell(sleeper(start_new_session=True))",
            "tell(sleeper('import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)'))",
            DAEMON,
        ],
        ids=["plain", "deaf", "grandchild", "own session", "deaf grandchild", "daemon"],
    )
    def test_nothing_is_left(self, make, before):
        async def main():
            async with started(make(script(before))) as server:
                family = grandchildren(server)
                assert len(family) == (0 if before in ("", IGNORES_SIGTERM) else 1)
            assert not any(p.is_running() for p in family)

        asyncio.run(main())

    def test_nothing_is_left_by_a_server_that_died(self, make):
        async def main():
            async with started(make(script("tell(sleeper())"))) as server:
                family = grandchildren(server)
                os.kill(server._process.pid, signal.SIGKILL)
                await server.died().wait()
                assert family[0].is_running()
            assert not family[0].is_running()

        asyncio.run(main())

    def test_it_can_be_told_twice_and_before_it_was_started(self, make):
        async def main():
            server = make(script())
            async with started(server):
                await server.stop()
            await server.stop()
            never = make("")
            await never.stop()
            await never.stop()

        asyncio.run(main())

    def test_it_is_seen_through_when_it_is_cancelled(self, make):
        async def main():
            server = make(script(IGNORES_SIGTERM))
            await server.start(timeout=LONG)
            task = asyncio.create_task(server.stop())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return server

        assert asyncio.run(main())._process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("before", ["tell(sleeper(start_new_session=True))", DAEMON], ids=["own session", "daemon"])
def test_when_we_are_killed_the_watchdog_ends_the_whole_family(tmp_path, before):
    program = f"""
import asyncio, sys
from pytest_llmperf.engines.server.process import ServerProcess

async def main():
    server = ServerProcess(
        [sys.executable, "-c", {script(before)!r}, {str(port := free_port())!r}], port={port}, log_path="server.log"
    )
    await server.start(timeout={LONG})
    print("up", server._process.pid, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""
    # The folder of this project, for the program and its watchdog to find the package.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    ours = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    )
    word, pid = ours.stdout.readline().split()
    assert word == "up"
    lines = (tmp_path / "server.log").read_text().splitlines()
    family = [psutil.Process(int(pid))] + [psutil.Process(int(x.split()[1])) for x in lines if "grandchild" in x]
    assert len(family) == 2
    ours.kill()
    ours.wait()
    ours.stdout.close()
    deadline = time.monotonic() + LONG
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family if psutil.pid_exists(p.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
