"""How far off the energy of a block is, ours and that of Zeus, where the truth is known.

    python -m benchmarks.energy.compare --zeus-python ZEUS_ENV/bin/python

from the root of the repository, with a C compiler. The boards are those of the fake driver library
(tests/fake_nvml): one V100, A100 and H100 with a known power curve. Both read the same boards during the same blocks.

Zeus needs neither torch nor a GPU for this: ZeusMonitor loads NVML by name, so ``LD_LIBRARY_PATH`` leads it to the same
library, and ``sync_execution=False`` asks for no framework. Without ``--zeus-python`` ours is measured alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pytest_llmperf.gpu.energy import Joules
from pytest_llmperf.gpu.energy.exact_window import across
from pytest_llmperf.gpu.sampling.watch import BoardWatch
from tests.fake_nvml.build import build
from tests.fake_nvml.curves import Curve, bursts, ramp, steps
from tests.fake_nvml.fixture import SCENARIOS

GENERATIONS = ("v100", "a100", "h100")
#: Of the power at which a board of each generation is busy.
SCALE = {"v100": 0.4, "a100": 0.6, "h100": 1.0}
#: Seconds of a block, how often, and the error that is allowed.
BLOCKS = ((0.5, 12, 0.05), (2.0, 8, 0.01), (10.0, 3, 0.003))


def curves(scale: float) -> dict[str, Curve]:
    """What the boards do: prefills and decoding, plateaus, and up and down."""
    return {
        "bursts": bursts(0.83, 350 * scale, 640 * scale, 0.07),
        "steps": steps(0.61, [120 * scale, 600 * scale, 300 * scale, 640 * scale]),
        "ramp": ramp(2.3, 120 * scale, 640 * scale),
    }


@dataclass
class Errors:
    """Of the blocks of one length on one generation, relative to the truth.

    Attributes:
        ours: Magnitudes.
        stated: What we said that the standard uncertainty is.
        zeus: Magnitudes.
        refused: How often we gave no energy.
    """

    ours: list[float] = field(default_factory=list)
    stated: list[float] = field(default_factory=list)
    zeus: list[float] = field(default_factory=list)
    refused: int = 0


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zeus-python", help="the Python of an environment with Zeus")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    found: dict[tuple[str, float], Errors] = {}
    for kind in curves(1.0):
        chosen = {name: curves(SCALE[name])[kind] for name in GENERATIONS}
        with boards(chosen) as start_ns, blocks(arguments.zeus_python) as block:
            for seconds, count, _ in BLOCKS:
                for _ in range(count):
                    one_block(seconds + rng.uniform(0, 0.02), rng, seconds, chosen, start_ns, block, found)
                print(f"{kind}: {count} blocks of {seconds} s", file=sys.stderr)
    print(table(found))


@contextmanager
def boards(chosen: dict[str, Curve]) -> Iterator[int]:
    """The boards, for this process's children; gives the moment from which their curves count."""
    texts = [
        (SCENARIOS / f"{name}.ini").read_text().replace("[board 0]", f"[board {n}]") for n, name in enumerate(chosen)
    ]
    played = [curve.scenario(n) for n, curve in enumerate(chosen.values())]
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        state.mkdir()
        scenario = Path(folder) / "scenario.ini"
        scenario.write_text("\n".join([*texts, *played]))
        start_ns = time.monotonic_ns()
        (state / "start").write_text(f"{start_ns}\n")
        os.environ |= {
            "FAKE_NVML_SCENARIO": str(scenario), "FAKE_NVML_STATE": str(state), "LD_LIBRARY_PATH": str(build()),
        }  # fmt: skip
        yield start_ns


@contextmanager
def blocks(zeus_python: str | None) -> Iterator[subprocess.Popen[str] | None]:
    """Zeus's side, ready to measure; ``None`` without it."""
    if zeus_python is None:
        yield None
        return
    side = [zeus_python, str(Path(__file__).with_name("zeus_blocks.py"))]
    with subprocess.Popen(
        side, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as zeus:
        assert zeus.stdin is not None
        assert zeus.stdout is not None
        while (line := zeus.stdout.readline()) and line != "ready\n":
            continue
        yield zeus
        zeus.stdin.close()


def one_block(
    seconds: float, rng: random.Random, length: float, chosen: dict[str, Curve], start_ns: int,
    zeus: subprocess.Popen[str] | None, found: dict[tuple[str, float], Errors],
) -> None:  # fmt: skip
    """Measure one block on all boards, by both."""
    listed = "from pytest_llmperf.gpu.nvml import Nvml\nwith Nvml() as n: print(*[b.uuid for b in n.boards()])"
    uuids = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True).stdout.split()
    watches = [BoardWatch([uuid]) for uuid in uuids]
    try:
        for watch in watches:
            watch.begin_blocking()
        time.sleep(rng.uniform(0, 0.1))
        begin, end, joules = block(seconds, zeus)
        samples = [watch.end_blocking()[0] for watch in watches]
    finally:
        for watch in watches:
            watch.close()
    for n, ((name, curve), one) in enumerate(zip(chosen.items(), samples, strict=True)):
        truth = curve.joules((begin - start_ns) / 1e9, (end - start_ns) / 1e9)
        errors = found.setdefault((name, length), Errors())
        ours = across(one.counter(), one.power(), begin, end)
        if isinstance(ours, Joules):
            errors.ours.append(abs(ours.value / truth - 1))
            errors.stated.append(ours.error / truth)
        else:
            errors.refused += 1
        if joules:
            errors.zeus.append(abs(joules[str(n)] / truth - 1))


def block(seconds: float, zeus: subprocess.Popen[str] | None) -> tuple[int, int, dict[str, float]]:
    """When it began and ended, and what Zeus says of it."""
    if zeus is None:
        begin = time.monotonic_ns()
        time.sleep(seconds)
        return begin, time.monotonic_ns(), {}
    assert zeus.stdin is not None
    assert zeus.stdout is not None
    zeus.stdin.write(f"{seconds}\n")
    zeus.stdin.flush()
    answer = json.loads(zeus.stdout.readline())
    return answer["begin"], answer["end"], answer["joules"]


def table(found: dict[tuple[str, float], Errors]) -> str:
    """Magnitude of (reported - true) / true: median / worst."""
    lines = [
        "| board | block | ours | stated by us | refused | Zeus | allowed |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for seconds, _, allowed in BLOCKS:
        for name in GENERATIONS:
            errors = found[name, seconds]
            count = len(errors.ours) + errors.refused
            lines.append(
                f"| {name.upper()} | {seconds:g} s | {_both(errors.ours)} | {_middle(errors.stated)} | "
                f"{errors.refused} of {count} | {_both(errors.zeus)} | {allowed:.1%} |"
            )
    return "\n".join(lines)


def _both(errors: list[float]) -> str:
    return f"{statistics.median(errors):.2%} / {max(errors):.2%}" if errors else "-"


def _middle(errors: list[float]) -> str:
    return f"{statistics.median(errors):.2%}" if errors else "-"


if __name__ == "__main__":
    main()
