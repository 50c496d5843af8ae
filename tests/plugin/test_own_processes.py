"""Who may compute on the boards while this session measures."""

import os
import sys

import pytest

from pytest_llmperf.engines.spec import choose
from pytest_llmperf.plugin.instruments import own_processes
from tests.test_local_processes import BROTHERS, numbers, orphaned, running


def own(engine, *, in_worker=False):
    return own_processes(choose(engine, gpus=[], gate_needs_gpu=False), in_worker=in_worker)


def test_what_this_session_has_started():
    with running(sys.executable, "-c", BROTHERS) as process:
        started = numbers(process)[1:]
        assert own("sim:h200") >= {os.getpid(), *started}


def test_what_the_other_workers_have_started():
    assert os.getppid() not in own("sim:h200")
    assert {os.getppid(), os.getpid()} <= own("sim:h200", in_worker=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_on_this_machine(host):
    with orphaned(sys.executable, "-c", BROTHERS) as (port, *server):
        assert set(server) <= own(f"http://{host}:{port}")
        assert not set(server) & own("sim:h200")


def test_of_a_server_elsewhere_nothing_is_ours():
    with orphaned(sys.executable, "-c", BROTHERS) as (port, *server):
        assert not set(server) & own(f"http://192.0.2.1:{port}")
