"""Ends an engine's processes when the process that started them was killed outright.

Nothing can be cleaned up after SIGKILL, and vLLM's processes then live on with the GPU's memory. So a small
process of its own waits for the end of the first. It is told by process ids with start times, so that an id which
was given out again is never mistaken.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import psutil

from pytest_llmperf.engines.descent import MARK, kin

__all__ = ["Watchdog"]


#: Two processes of one id cannot have started this close together, in seconds.
_SAME_START_S = 5.0


class Watchdog:
    """Watches this process on behalf of some others; :meth:`dismiss` it once they have been ended properly.

    Args:
        processes: To be killed, with all that belong to them.
        mark: What the environment of theirs holds.
    """

    def __init__(self, processes: list[psutil.Process], *, mark: str) -> None:
        words = [mark] + [f"{p.pid}:{p.create_time()}" for p in [psutil.Process(), *processes]]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pytest_llmperf.engines.watchdog", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # It must not take itself for one of them.
            env={name: value for name, value in os.environ.items() if name != MARK},
            start_new_session=True,  # Ctrl-C on the terminal is not meant for it
        )

    def dismiss(self) -> None:
        """End the watching."""
        self._process.kill()
        self._process.wait()


def _process(word: str) -> psutil.Process | None:
    pid, _, created = word.partition(":")
    with suppress(psutil.Error):
        process = psutil.Process(int(pid))
        # Start times are reckoned from the boot time, which a clock adjustment moves a little.
        if abs(process.create_time() - float(created)) < _SAME_START_S:
            return process
    return None


def main(mark: str, words: list[str]) -> None:
    """Wait for the first process to end, then kill the others and all that belong to them."""
    watched, *others = (_process(word) for word in words)
    if watched is not None:
        watched.wait()
    for process in kin([p for p in others if p is not None], psutil.process_iter(), mark=mark):
        with suppress(psutil.Error):
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
