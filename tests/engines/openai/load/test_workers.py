"""The worker processes: each request once, no process or descriptor left, whatever ends them."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from pytest_llmperf.engines.openai.load.workers import Workers
from pytest_llmperf.errors import EngineError
from pytest_llmperf.piped import PipedProcess

from ..loads import MS, good, opening, request
from ..player import GUARD_S, Player, Reply
from .test_pace_over_sockets import together

pytestmark = pytest.mark.timeout(90)


def children():
    return [p for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


def descriptors(process) -> int:
    return sum(1 for _ in Path(f"/proc/{process}/fd").iterdir())


def gone(pids) -> None:
    """Wait until none of these processes is there."""
    limit = time.monotonic() + GUARD_S
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        assert time.monotonic() < limit, "a process stayed"
        time.sleep(0.02)


def numbered(count):
    return {number: request(b"%d" % number) for number in range(count)}


async def with_workers(player, count, work):
    workers = Workers(opening(player), count)
    try:
        await workers.start()
        return await work(workers)
    finally:
        workers.close()


def test_several_workers_share_a_load_and_its_lanes():
    async def work(workers):
        await workers.prepare(numbered(24), 5)
        return await workers.carry(list(range(24)), None, 5, 20_000 * MS)

    with Player(together(2)) as player:
        answers = asyncio.run(with_workers(player, 2, work))
        player.wait(lambda p: p.gone == p.accepted)
    assert [a.number for a in answers] == list(range(24))
    assert [a.decoded.error for a in answers] == [None] * 24
    assert sorted(int(a.body) for a in player.asked) == list(range(24))
    assert player.peak <= 5
    assert player.accepted == 5
    assert children() == []


def test_workers_without_a_share_open_no_connection():
    async def work(workers):
        assert await workers.prepare(numbered(3), 1) == 1
        return await workers.carry([0, 1, 2], None, 1, 20_000 * MS)

    with Player(good) as player:
        answers = asyncio.run(with_workers(player, 3, work))
    assert [a.decoded.error for a in answers] == [None] * 3
    assert player.accepted == 1


def test_due_times_hold_across_workers_and_parts_of_a_load():
    async def work(workers):
        await workers.prepare(numbered(9), None)
        start = time.monotonic_ns() + 30 * MS
        due = [start + place * MS for place in range(9)]
        first = await workers.carry(list(range(4)), due[:4], None, 20_000 * MS)
        return due, first + await workers.carry(list(range(4, 9)), due[4:], None, 20_000 * MS)

    with Player(good) as player:
        due, answers = asyncio.run(with_workers(player, 2, work))
    assert [a.due_ns for a in answers] == due
    assert all(a.due_ns <= a.sent_ns and a.decoded.error is None for a in answers)
    came = {int(asked.body): asked.received_ns for asked in player.asked}
    assert all(came[place] >= when for place, when in enumerate(due))


def test_fewer_lanes_than_were_prepared_for():
    async def work(workers):
        await workers.prepare(numbered(6), 6)
        return await workers.carry(list(range(6)), None, 1, 20_000 * MS)

    with Player(good) as player:
        answers = asyncio.run(with_workers(player, 2, work))
    assert [a.decoded.error for a in answers] == [None] * 6
    assert player.peak == 1


def test_a_worker_that_is_killed_ends_the_load_in_words():
    async def work(workers):
        await workers.prepare(numbered(4), 4)
        load = asyncio.ensure_future(workers.carry(list(range(4)), None, None, 600_000 * MS))
        await asyncio.to_thread(player.wait, lambda p: len(p.asked) == 4)
        children()[0].send_signal(signal.SIGKILL)
        with pytest.raises(EngineError, match=r"^The process .*worker ended: killed by signal 9\.$"):
            await load
        assert children() == []
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(EngineError, match="has ended"):
            await workers.prepare(numbered(1), 1)

    with Player(lambda _: Reply((), "hang")) as player:
        asyncio.run(with_workers(player, 2, work))
        player.wait(lambda p: p.gone == p.accepted)


def test_a_load_that_is_cancelled_leaves_nothing():
    async def work(workers):
        await workers.prepare(numbered(4), 4)
        load = asyncio.ensure_future(workers.carry(list(range(4)), None, None, 600_000 * MS))
        await asyncio.to_thread(player.wait, lambda p: len(p.asked) == 4)
        load.cancel()
        with pytest.raises(asyncio.CancelledError):
            await load
        assert children() == []

    with Player(lambda _: Reply((), "hang")) as player:
        asyncio.run(with_workers(player, 2, work))
        player.wait(lambda p: p.gone == p.accepted)


def test_no_descriptor_is_leaked():
    async def work(workers):
        (process,) = children()
        counts = []
        for _ in range(6):
            await workers.prepare(numbered(10), 4)
            await workers.carry(list(range(10)), None, 4, 20_000 * MS)
            counts.append((descriptors(process.pid), descriptors("self")))
        return counts

    def answer(asked):
        # Some connections stay, some end.
        return Reply(good().steps, "close") if asked.body.endswith(b"3") else good()

    with Player(answer) as player:
        before = descriptors("self")
        counts = asyncio.run(with_workers(player, 1, work))
    theirs = [count for count, _ in counts]
    assert max(theirs) - min(theirs) <= 16, theirs  # spare connections come and go
    assert descriptors("self") <= before


PARENT = """
import asyncio, sys
from pytest_llmperf.engines.openai.load.worker import Open
from pytest_llmperf.engines.openai.load.workers import Workers
from pytest_llmperf.piped import PipedProcess
from pytest_llmperf.engines.openai.load.loopback import Paced

async def main(port):
    workers = Workers(Open(2, ("127.0.0.1", port), "player", realtime=False), 2)
    await workers.start()
    loopback = PipedProcess("pytest_llmperf.engines.openai.load.loopback")
    await loopback.reply()
    loopback.tell(Paced(5, 5, 5, 5))
    messages = {n: b"POST / HTTP/1.1\\r\\nContent-Length: 0\\r\\n\\r\\n" for n in range(4)}
    await workers.prepare(messages, 4)
    print("ready", flush=True)
    await workers.carry([0, 1, 2, 3], None, None, 10**15)

asyncio.run(main(int(sys.argv[1])))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_parent_that_ends_takes_all_along(how):
    with Player(lambda _: Reply((), "hang")) as player:
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(PARENT), str(player.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        )
        try:
            assert parent.stdout.readline() == b"ready\n"
            player.wait(lambda p: len(p.asked) == 4)
            pids = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
            assert len(pids) == 3
            parent.send_signal(how)
            parent.wait(GUARD_S)
        finally:
            parent.kill()
            parent.communicate()
        player.wait(lambda p: p.gone == p.accepted)
        gone(pids)


def test_a_process_that_ends_by_itself_is_named_with_its_last_words():
    async def reply():
        process = PipedProcess("pytest_llmperf.engines.openai.no_such_module")
        try:
            await process.reply()
        finally:
            process.kill()

    with pytest.raises(
        EngineError, match=r"no_such_module ended: exit status 1, ModuleNotFoundError: .*no_such_module"
    ):
        asyncio.run(reply())


def test_a_fault_of_the_worker_is_told():
    async def work(workers):
        await workers.prepare(numbered(1), 1)
        workers._owner[7] = 0
        await workers.carry([7], None, None, MS)

    with (
        Player(good) as player,
        pytest.raises(EngineError, match=r"(?s)worker process of the load client failed.*KeyError"),
    ):
        asyncio.run(with_workers(player, 1, work))
    assert children() == []
