"""How long the simulated engine takes, with everything around it: pytest's start, metrics, gate, traces, report.

Each session is a process of its own on one core, as its user would start it. Prints its wall time and the most memory
that any of them has held so far; asserts nothing.

    python -m benchmarks.simulation.speed
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENGINE = "sim:h200,launch_noise=0.005,repeat_noise=0.003"
REQUESTS = 10_000
RATE = 20
TEST = """
from pytest_llmperf import Workload

def test_it(llmperf):
    llmperf.measure(Workload({workload}))
"""
#: Repeated three times each, as any test is.
WORKLOADS = {
    f"{REQUESTS:,} requests, Poisson": f"512, 256, rate={RATE}, requests={REQUESTS}, warmup=0",
    f"{REQUESTS:,} requests, lognormal lengths": (
        f"dict(lognormal=[512, 0.5, 16, 4096]), dict(lognormal=[256, 0.5, 4, 2048]), rate={RATE}, "
        f"requests={REQUESTS}, warmup=0"
    ),
    f"{REQUESTS:,} requests, replayed": "trace='trace.jsonl', warmup=0",
}


def write_trace(path: Path) -> None:
    """A trace file like those that a server's log gives."""
    rng, now = random.Random(1), 0.0
    with path.open("w") as file:
        for _ in range(REQUESTS):
            now += rng.expovariate(RATE)
            request = {"arrival": now, "input_len": rng.randint(16, 1024), "output_len": rng.randint(16, 500)}
            file.write(json.dumps(request) + "\n")


def session(folder: Path, *arguments: str) -> tuple[float, float, str]:
    """Seconds, MiB and the last line of a session of pytest on one core."""
    command = [
        sys.executable, "-m", "pytest", *arguments, "-q", "-p", "no:cacheprovider", f"--llmperf-engine={ENGINE}",
        f"--llmperf-report={folder / 'report'}", f"--llmperf-baselines={folder / 'baselines'}",
    ]  # fmt: skip
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, text=True,
        stdout=subprocess.PIPE, preexec_fn=one_core,
    )  # fmt: skip
    output, _ = process.communicate()
    seconds = time.perf_counter() - began
    held = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024  # of the largest so far
    return seconds, held, output.strip().splitlines()[-1]


def one_core() -> None:
    """Stay on the first core that this process may use."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    """Run and print."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder / "trace.jsonl")
        sessions = {"shipped suites, nothing stored": [str(ROOT / "suites")]}
        for number, (what, workload) in enumerate(WORKLOADS.items()):
            file = folder / f"test_{number}.py"
            file.write_text(TEST.format(workload=workload))
            sessions[what] = [str(file)]
        for what, arguments in sessions.items():
            seconds, held, last = session(folder, *arguments)
            print(f"{what:<36} {seconds:6.1f} s  {held:6.0f} MiB  ({last})", flush=True)


if __name__ == "__main__":
    main()
