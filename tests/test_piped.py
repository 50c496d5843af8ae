"""A process at the other end of a pipe that does not answer."""

import asyncio
import os
import time

import pytest

from pytest_llmperf.errors import EngineError
from pytest_llmperf.piped import PipedProcess

MODULE = """
import os, signal, time
from multiprocessing.connection import Connection

def main(descriptor):
    pipe = Connection(descriptor)
    while True:
        order = pipe.recv()
        if order == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif order == "stop within":
            os.write(descriptor, b"\\0\\0\\1\\0half of it")
            time.sleep(60)
        pipe.send(order)
"""


@pytest.fixture
def process(tmp_path, monkeypatch):
    (tmp_path / "llmperf_echo.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    process = PipedProcess("llmperf_echo")
    yield process
    process.kill()


def waits(process, limit_s):
    return process.wait(limit_s)


def replies(process, limit_s):
    return asyncio.run(process.reply(limit_s))


@pytest.mark.parametrize("answer", [waits, replies])
@pytest.mark.parametrize("how", ["stop", "stop within"])
def test_it_is_killed_and_named(process, answer, how):
    process.tell("an order")
    assert answer(process, 20) == "an order"
    process.tell(how)
    before = time.monotonic()
    with pytest.raises(EngineError, match=r"llmperf_echo did not answer within 0\.3 s: it was killed"):
        answer(process, 0.3)
    assert time.monotonic() - before < 10
    with pytest.raises(EngineError, match="did not answer"):
        process.tell("another")


@pytest.mark.parametrize("answer", [waits, replies])
def test_one_that_answers_in_time_is_not_touched_later(process, answer):
    process.tell(1)
    assert answer(process, 1.0) == 1
    time.sleep(1.2)
    process.tell(2)
    assert answer(process, None) == 2
