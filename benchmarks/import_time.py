"""What the plugin adds to the start of every pytest session: the time of its import beyond pytest's own.

Prints the median over fresh interpreters; the goal is below 20 ms.

    python benchmarks/import_time.py
"""

import statistics
import subprocess
import sys

ROUNDS = 20
CODE = """
import time, pytest, _pytest.runner, _pytest.outcomes, _pytest.terminal
start = time.perf_counter()
import {module}
print((time.perf_counter() - start) * 1000)
"""


def milliseconds(module: str) -> float:
    """Median import time of a module in fresh interpreters that have imported pytest."""
    command = [sys.executable, "-c", CODE.format(module=module)]
    return statistics.median(float(subprocess.check_output(command)) for _ in range(ROUNDS))


if __name__ == "__main__":
    for name in ("pytest_llmperf.plugin", "pytest_benchmark.plugin"):
        print(f"{name:<26} {milliseconds(name):6.1f} ms")
