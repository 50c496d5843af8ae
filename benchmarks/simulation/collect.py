"""Take the points out of a run on a real board: from its results.json to a file in ``measured/``.

    python -m benchmarks.simulation.collect REPORT_FOLDER measured/NAME.json --board B --what "..."

What is kept of a test is its workload and engine arguments and the values of a few metrics, no trace. ``--board`` tells
boards of one product apart without their serial numbers: energy differs from board to board.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

#: Of the metrics, with digits kept.
_METRICS = {"ttft": 4, "tpot": 4, "throughput": 5, "power": 4, "sm_clock": 4, "dram_utilization": 3}


def main() -> None:
    """Write the file, and say how many points it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--board", required=True)
    parser.add_argument("--what", required=True)
    parser.add_argument("--model", help="a name for the model in place of its folder")
    asked = parser.parse_args()
    results = json.loads((asked.report / "results.json").read_text("utf-8"))
    tests = [test for test in results["tests"] if test["outcome"] != "failed" and test["metrics"]]
    engine = tests[0]["engine"]
    gpu = results["environment"]["gpus"][0]
    record = {
        "what": asked.what,
        "gpu": gpu["name"],
        "board": asked.board,
        "driver": gpu["driver"],
        "power_limit": gpu["power_limit_w"],
        "engine": f"vllm {engine['version']}",
        "arguments": {name: value for name, value in engine["treatment"].items() if name != "model"},
        "model": asked.model or engine["model"],
        "idle_with_model_loaded": tests[0]["energy"][0]["idle_power"],
        "points": [_point(test) for test in tests],
    }
    asked.file.write_text(_lines(record), "utf-8")
    print(f"{asked.file}: {len(tests)} points")


def _point(test: dict[str, Any]) -> dict[str, Any]:
    defaults = {"arrival": "poisson", "policy": "continuous", "warmup": 1, "seed": 0, "shared_prefix": 0}
    workload = {k: v for k, v in test["workload"].items() if v not in (None, {}) and v != defaults.get(k)}
    workload.pop("digest", None)
    values = {name: (test["metrics"].get(name) or {}).get("value") for name in _METRICS}
    return {
        "test": test["nodeid"].split("::")[1].removeprefix("test_"),
        "workload": workload,
        **{name: None if value is None else float(f"{value:.{_METRICS[name]}g}") for name, value in values.items()},
    }


def _lines(record: dict[str, Any]) -> str:
    """JSON with a point a line."""
    points = ",\n".join("  " + json.dumps(point) for point in record.pop("points"))
    head = json.dumps(record, indent=1)[:-2]
    return f'{head},\n "points": [\n{points}\n ]\n}}\n'


if __name__ == "__main__":
    main()
