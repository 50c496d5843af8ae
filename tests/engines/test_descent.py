"""Who belongs to an engine: by descent, by session, by mark; and who does not."""

import os
import subprocess
import sys

import psutil
import pytest

from pytest_llmperf.engines.descent import MARK, kin
from pytest_llmperf.engines.processes import ProcessFamily

SLEEP = "import time; time.sleep(600)"
#: Starts a child that sleeps, and leaves.
LEAVE = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {SLEEP!r}]).pid)"


@pytest.fixture
def start():
    started = []

    def start(code=SLEEP, *, session=False, mark=None):
        environment = {**os.environ, **({MARK: mark} if mark else {})}
        process = subprocess.Popen(
            [sys.executable, "-c", code], start_new_session=session, env=environment, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        while mark and not psutil.Process(process.pid).environ():
            pass  # it has not quite become the new program
        return psutil.Process(process.pid), process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_stranger_is_none_of_the_family(start):
    (member, _), (stranger, _), (marked, _) = start(session=True), start(session=True), start(mark="other")
    candidates = [member, stranger, marked, psutil.Process()]
    assert kin([member], candidates, mark="ours") == [member]
    assert kin([member], candidates, mark=None) == [member]
    assert kin([], candidates, mark="ours") == []


def test_whoever_bears_the_mark_belongs(start):
    (member, _), (marked, _) = start(), start(session=True, mark="ours")
    assert kin([member], [marked], mark="ours") == [member, marked]


def test_a_session_outlives_its_leader(start):
    leader, process = start(LEAVE, session=True)
    orphan = psutil.Process(int(process.stdout.readline()))
    process.wait()
    try:
        assert not leader.is_running()
        assert kin([leader], [orphan], mark=None) == [leader, orphan]
    finally:
        orphan.kill()


def test_an_id_that_was_given_out_again_leads_no_session_of_ours(start, monkeypatch):
    (member, _), (other, _) = start(session=True), start(session=True)
    monkeypatch.setattr(psutil.Process, "is_running", lambda self: False)
    assert kin([member], [psutil.Process(member.pid), other], mark=None) == [member]
    assert kin([member], [other], mark=None) == [member]


def test_a_child_that_we_have_started_is_ended_with_its_own(start):
    family = ProcessFamily()
    child, process = start(f"{LEAVE}\n{SLEEP}", session=True, mark=family.mark)
    family.add(child.pid)
    while len(family.members()) < 2:
        assert process.poll() is None
    _, grandchild = family.members()
    family.end(at_once=True)
    assert not child.is_running()
    assert not grandchild.is_running()
