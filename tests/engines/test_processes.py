"""The processes of an engine end with it: when it is closed, when a middle process dies, when we are killed."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from pytest_llmperf.engines.processes import ProcessFamily

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
#: Starts a child that sleeps, tells its id, and sleeps too.
PARENT = (
    "import subprocess, sys, time\n"
    f"print(subprocess.Popen({SLEEP!r}, stdout=subprocess.DEVNULL).pid, flush=True)\n"
    "time.sleep({})"
)


def gone(pid, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def start(seconds):
    process = subprocess.Popen([sys.executable, "-c", PARENT.format(seconds)], stdout=subprocess.PIPE, text=True)
    return process, int(process.stdout.readline())


def test_a_family_that_was_not_asked_to_end_is_ended():
    family = ProcessFamily()
    with family.growing():
        process, grandchild = start(600)
    family.end(at_once=True)
    process.communicate()
    assert gone(process.pid)
    assert gone(grandchild)


def test_an_orphan_is_ended_too():
    family = ProcessFamily()
    with family.growing():
        process, orphan = start(0)
        process.communicate()
    assert psutil.pid_exists(orphan)
    family.end(at_once=True)
    assert gone(orphan)


def test_processes_of_others_are_left_alone():
    before = subprocess.Popen(SLEEP)
    family = ProcessFamily()
    with family.growing():
        pass
    after = subprocess.Popen(SLEEP)
    try:
        family.end(at_once=True)
        assert before.poll() is None
        assert after.poll() is None
    finally:
        for process in (before, after):
            process.kill()
            process.wait()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_we_are_killed_the_watchdog_ends_the_family(number):
    code = (
        "import subprocess, time\n"
        "from pytest_llmperf.engines.processes import ProcessFamily\n"
        "family = ProcessFamily()\n"
        "with family.growing():\n"
        f"    child = subprocess.Popen({SLEEP!r}, stdout=subprocess.DEVNULL)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)"
    )
    ours = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child = int(ours.stdout.readline())
    assert psutil.pid_exists(child)
    os.kill(ours.pid, number)
    ours.wait()
    ours.stdout.close()
    assert gone(child)
