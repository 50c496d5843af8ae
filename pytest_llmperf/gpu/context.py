"""A process that holds a CUDA context on every visible GPU and nothing else.

A context is what any CUDA program has before it does anything: it keeps a board's clocks from falling and takes a few
hundred MiB of its memory. It lives as long as its process, so it is held in one of its own, which ends with whoever
asked for it. Its GPUs are those that ``CUDA_VISIBLE_DEVICES`` shows.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

from pytest_llmperf.errors import EngineError
from pytest_llmperf.gpu import Reading, Unreadable
from pytest_llmperf.piped import PipedProcess

__all__ = ["cuda_contexts", "main", "retain_contexts"]

_LIBRARY = "libcuda.so.1"
#: The driver takes a few seconds for a board without persistence mode.
_START_S = 60.0


@contextmanager
def cuda_contexts() -> Iterator[Reading[int]]:
    """Hold contexts within the block.

    Yields:
        The number of the process that holds them, or why there are none.
    """
    process = PipedProcess("pytest_llmperf.gpu.context")
    try:
        yield _answer(process)
    finally:
        process.kill()


def _answer(process: PipedProcess) -> Reading[int]:
    try:
        said: int | str = process.wait(_START_S)
    except EngineError as error:
        return Unreadable(f"no CUDA context could be made: {error.problem}")
    return Unreadable(f"no CUDA context could be made: {said}") if isinstance(said, str) else said


def main(descriptor: int) -> None:
    """Make the contexts, say so over a pipe, and hold them until its other end is gone."""
    with Connection(descriptor) as pipe:
        why = retain_contexts()
        pipe.send(os.getpid() if why is None else why)
        with suppress(EOFError, OSError):
            pipe.recv()


def retain_contexts(load: Callable[[str], Any] = ctypes.CDLL) -> str | None:
    """Retain the primary context of every visible GPU, for the life of this process.

    Args:
        load: Opens the driver's library by its name.

    Returns:
        Why there is none on one of them, in the driver's words; ``None`` when all are there.
    """
    try:
        driver = load(_LIBRARY)
    except OSError as error:
        return str(error)
    try:
        return _retain(driver)
    except AttributeError as error:
        return f"{_LIBRARY} is no CUDA driver ({error})"


def _retain(driver: Any) -> str | None:
    if why := _refused(driver, "cuInit", 0):
        return why
    count = ctypes.c_int()
    if why := _refused(driver, "cuDeviceGetCount", ctypes.byref(count)):
        return why
    if not count.value:
        return "CUDA shows no GPU"
    for ordinal in range(count.value):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        why = _refused(driver, "cuDeviceGet", ctypes.byref(device), ordinal)
        why = why or _refused(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        if why:
            return f"{why} (GPU {ordinal})"
    return None


def _refused(driver: Any, function: str, *arguments: Any) -> str | None:
    """What a call was refused with, by its name; ``None`` when it succeeded."""
    status = getattr(driver, function)(*arguments)
    if not status:
        return None
    name = ctypes.c_char_p()
    known = not driver.cuGetErrorName(status, ctypes.byref(name)) and name.value
    return f"{function}: {name.value.decode() if known and name.value else f'error {status}'}"
