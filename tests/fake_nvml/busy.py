"""A server whose boards are busy while it answers, to try the plugin by hand: ``python -m tests.fake_nvml.busy``.

It prints its URL and serves until it is interrupted; ``busy 2`` keeps boards 0 and 1 busy. The load follows the
requests in flight. A prompt takes some time for each of its tokens; the server's speed does not follow the boards'
clock.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.plugin.servers import FakeServer

PREFILL_S_PER_TOKEN = 0.0003


@contextlib.contextmanager
def busy_while(in_flight: Callable[[], int], *load_files: Path) -> Iterator[None]:
    """Writes the load that the requests in flight make, whenever it changes, until the block ends; then none."""
    over = threading.Event()

    def follow() -> None:
        last = -1
        while not over.wait(0.001):
            requests = in_flight()
            if requests != last:
                _append(load_files, _load(requests))
                last = requests

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _append(load_files, 0)


def _load(requests: int) -> float:
    """Half for a single request, because decoding reads the weights whatever the batch; all at 16."""
    return 0 if requests <= 0 else min(0.5 + requests / 32, 1)


def _append(paths: Iterable[Path], load: float) -> None:
    for path in paths:
        with path.open("a") as file:
            file.write(f"{time.monotonic_ns()} {load}\n")


def prefill(request: dict) -> None:
    """Takes the time of a request's prompt."""
    time.sleep(PREFILL_S_PER_TOKEN * len(request.get("prompt", ())))


def main(boards: int = 1) -> None:
    """Serves until it is interrupted or terminated."""
    # Blocked in all threads, so that the signal is waited for; a shell's background job ignores SIGINT otherwise.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    load_files = [Path(os.environ["FAKE_NVML_STATE"]) / f"load.{index}" for index in range(boards)]
    server = FakeServer(lambda number: prefill(server.requests[number]))
    with server, busy_while(lambda: len(server.requests) - server.answered, *load_files):
        print(f"http://{server.address}", flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
