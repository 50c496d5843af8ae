"""Zeus's side: measures blocks with ZeusMonitor, in an environment that has it.

It reads the seconds of a block from standard input, one a line, and answers with a line of JSON: when the block began
and ended (CLOCK_MONOTONIC, ns), and the joules of every board. Nothing but Zeus is imported.
"""

from __future__ import annotations

import json
import sys
import time

from zeus.monitor import ZeusMonitor


def main() -> None:
    """Measure until standard input ends."""
    monitor = ZeusMonitor(cpu_indices=[])
    print("ready", flush=True)
    for line in sys.stdin:
        # There is no framework whose work would have to be waited for.
        monitor.begin_window("block", sync_execution=False)
        begin = time.monotonic_ns()
        time.sleep(float(line))
        end = time.monotonic_ns()
        measured = monitor.end_window("block", sync_execution=False)
        joules = {str(index): value for index, value in measured.gpu_energy.items()}
        print(json.dumps({"begin": begin, "end": end, "joules": joules}), flush=True)


if __name__ == "__main__":
    main()
