"""Whose processes are whose, with real processes and real sockets."""

import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import psutil

from pytest_llmperf.local_processes import descendants, described, server_processes

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
#: A server whose listener has the worker for a brother: both below one that only waits.
BROTHERS = f"""
import os, subprocess, sys, time
listen = "import os, socket, time; s = socket.create_server(('127.0.0.1', 0))"
listen += "; print(s.getsockname()[1], os.getpid(), flush=True); time.sleep(600)"
worker = subprocess.Popen({SLEEP!r})
listener = subprocess.Popen([sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
print(listener.stdout.readline().strip(), worker.pid, os.getpid(), flush=True)
time.sleep(600)
"""


@contextmanager
def running(*command, **options):
    """A child of this process, and all that it has started, until the block is left."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    try:
        yield process
    finally:
        for one in [*psutil.Process(process.pid).children(recursive=True), process]:
            one.kill()
        process.communicate()


def numbers(process):
    return [int(word) for word in process.stdout.readline().split()]


@contextmanager
def orphaned(*command):
    """A process that has lost its parent, and so does not descend from this one; what it printed first, and its id."""
    start = (
        "import subprocess, sys\n"
        "p = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)\n"
        "print(p.stdout.readline().strip(), p.pid)"
    )
    done = subprocess.run([sys.executable, "-c", start, *command], capture_output=True, text=True, check=True)
    *said, pid = map(int, done.stdout.split())
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    try:
        yield [*said, pid]
    finally:
        for one in family:
            one.kill()


class TestDescendants:
    def test_of_this_process_are_itself_and_its_children_at_any_remove(self):
        code = f"import subprocess, time; print(subprocess.Popen({SLEEP!r}).pid, flush=True); time.sleep(600)"
        with running(sys.executable, "-c", code) as child:
            (grandchild,) = numbers(child)
            assert descendants(os.getpid()) >= {os.getpid(), child.pid, grandchild}
            assert descendants(child.pid) == {child.pid, grandchild}

    def test_of_one_that_is_gone_are_none(self):
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        assert descendants(child.pid) == set()
        assert described(child.pid) is None

    def test_a_zombie_is_described(self):
        child = subprocess.Popen([sys.executable, "-c", ""])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        try:
            assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
            assert described(child.pid).startswith("python")
            assert child.pid in descendants(child.pid)
        finally:
            child.wait()


class TestDescribed:
    def test_by_its_name_alone_where_it_is_ours(self):
        assert described(os.getpid()) == psutil.Process().name()

    def test_with_its_user_where_that_is_another(self, monkeypatch):
        monkeypatch.setattr(psutil.Process, "username", lambda self: "alice")
        assert described(os.getpid()) == f"{psutil.Process().name()} of alice"

    def test_a_user_that_is_hidden_is_left_out(self, monkeypatch):
        def denied(self):
            raise psutil.AccessDenied(self.pid)

        monkeypatch.setattr(psutil.Process, "username", denied)
        assert described(os.getpid()) == psutil.Process().name()


class TestServer:
    def test_its_whole_tree_is_found_by_the_listener(self):
        with orphaned(sys.executable, "-c", BROTHERS) as (port, listener, worker, top, started):
            assert top == started
            assert server_processes(port) == {listener, worker, top}

    def test_a_shell_above_it_is_no_part_of_it(self):
        script = '"$0" -c "$1" & "$0" -c "import time; time.sleep(600)" & wait'
        with orphaned("/bin/sh", "-c", script, sys.executable, BROTHERS) as (port, listener, worker, top, shell):
            assert psutil.Process(top).ppid() == shell
            assert server_processes(port) == {listener, worker, top}

    def test_one_that_this_process_has_started_ends_below_this_process(self):
        with running(*SLEEP), running(sys.executable, "-c", BROTHERS) as process:
            port, listener, worker, top = numbers(process)
            assert server_processes(port) == {listener, worker, top}

    def test_one_that_an_ancestor_of_this_process_has_started_ends_below_that(self):
        ask = (
            "import sys; from pytest_llmperf.local_processes import server_processes as s; print(*s(int(sys.argv[1])))"
        )
        runner = f"""
import subprocess, sys
server = subprocess.Popen([sys.executable, "-c", {BROTHERS!r}], stdout=subprocess.PIPE, text=True)
said = server.stdout.readline()
print(said.strip(), flush=True)
subprocess.run([sys.executable, "-c", {ask!r}, said.split()[0]])
sys.stdin.read()
"""
        with running(sys.executable, "-c", runner, stdin=subprocess.PIPE) as process:
            _, listener, worker, top = numbers(process)
            assert set(numbers(process)) == {listener, worker, top}

    def test_within_this_process_is_this_process(self):
        with socket.create_server(("127.0.0.1", 0)) as here:
            assert os.getpid() in server_processes(here.getsockname()[1])

    def test_that_nobody_runs_has_none(self):
        with socket.create_server(("127.0.0.1", 0)) as here:
            port = here.getsockname()[1]
        assert server_processes(port) == set()

    def test_a_namesake_on_all_addresses_is_not_whom_one_reaches(self):
        listen = (
            "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=True); "
            "print(1, flush=True); time.sleep(600)"
        )
        with socket.create_server(("0.0.0.0", 0), reuse_port=True) as everywhere:
            port = everywhere.getsockname()[1]
            assert os.getpid() in server_processes(port)
            with running(sys.executable, "-c", listen, str(port)) as there:
                numbers(there)
                assert server_processes(port) == {there.pid}

    def test_a_machine_that_does_not_tell_is_no_error(self, monkeypatch):
        def denied(kind):
            raise psutil.AccessDenied

        monkeypatch.setattr(psutil, "net_connections", denied)
        assert server_processes(80) == set()
