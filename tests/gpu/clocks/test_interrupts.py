"""Signals are put off while boards are locked, and then work as before."""

import os
import signal
import threading

import pytest

from pytest_llmperf.gpu.clocks.interrupts import as_interrupts, uninterrupted


@pytest.fixture(autouse=True)
def plain_handlers():
    """As a process has them that nobody has told anything."""
    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_comes_meanwhile_comes_after_it():
    done = []
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # the order is what is tested
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            done.append("all of it")
        done.append("not this")
    assert done == ["all of it"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_an_error_of_the_block_is_not_lost():
    with pytest.raises(ZeroDivisionError), uninterrupted():
        1 / 0  # noqa: B018
    with pytest.raises(KeyboardInterrupt) as caught, uninterrupted():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        1 / 0  # noqa: B018
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_signal_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with as_interrupts(signal.SIGHUP), uninterrupted():
        os.kill(os.getpid(), signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_deadly_signals_interrupt_as_ctrl_c_does():
    for number in (signal.SIGTERM, signal.SIGHUP):
        with pytest.raises(KeyboardInterrupt, match=number.name), as_interrupts(signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL


def test_somebody_elses_handler_is_left_alone():
    heard = []
    signal.signal(signal.SIGTERM, lambda *_: heard.append("theirs"))
    with as_interrupts(signal.SIGTERM):
        os.kill(os.getpid(), signal.SIGTERM)
    assert heard == ["theirs"]


def test_in_another_thread_nothing_is_changed():
    seen = []

    def work():
        with as_interrupts(signal.SIGTERM), uninterrupted():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
