"""Fit a simulated board to measured points, and print the error at each.

    python -m benchmarks.simulation.fit h200              # the parameters as they are: the errors
    python -m benchmarks.simulation.fit h200 --search     # search better ones; --write puts them into the board's file

Fitted is the logarithm of each parameter in ``FITTED`` by least squares, on the points that ``is_fitted`` names; the
others are held out, and reported apart. The residuals are relative errors over what is wanted of each figure, and
beside them stand weak priors: a parameter that no point says anything about stays where it was.

Boards of one product differ in what they draw. Each board but the first, the reference, has a factor on its power: it
is fitted too and thrown away. For a board that nothing is fitted to, it is what its own points say.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from benchmarks.simulation.trial import FIGURES, Point, points_of, simulate
from pytest_llmperf.simulation.board import BoardModel

#: Parameters that are searched, as in the board's file.
FITTED = (
    "memory.weights_share", "memory.cache_share", "memory.cache_share_8bit", "compute.matmul_share",
    "compute.attention_share", "compute.blend", "compute.token_s", "compute.head_s", "compute.sequence_s",
    "compute.layer_s", "compute.step_s", "host.sequence_launch_s", "host.mixed_launch_s", "host.eager_layer_launch_s",
    "power.busy_w", "power.memory_w", "power.compute_w", "power.voltage_floor", "power.limit_s",
)  # fmt: skip
#: Not above these: shares of a peak.
_MOST = {"memory.weights_share": 0.95, "memory.cache_share": 0.95, "memory.cache_share_8bit": 0.95,
         "compute.matmul_share": 1.0, "power.voltage_floor": 1.0}  # fmt: skip

#: By file: the tests that are fitted to; those of other files, and all others, are held out.
_FITTED_TO = {
    "h200-reference": r".*",
    "h200-mistral-7b": r"end_to_end\[(1|4|16|64)\]|decode\[(1|8|32|128)\]"
    r"|shapes\[(128-128-1|128-128-8|256-512-4)\]|closed_loop\[(4|64)\]|open_loop\[16-96\]|prefill\[(32-1|32-16|128-1|256-1|512-1|512-4|2048-1|4096-4|16384-1)\]",
    "h200-mistral-7b-kv-fp8": r"few\[512-128-64\]",
    "h200-mistral-7b-eager": r"few\[1-128-(1|16)\]",
    "h200-llama-2-7b": r"few\[1-128-64\]",
    "h200-34b": r"few\[1-128-1\]",
}
#: The relative error of each figure that counts as one.
_WANTED = {"ttft": 0.06, "tpot": 0.02, "throughput": 0.03, "power": 0.03}
#: The standard deviation of a parameter's logarithm around where it was.
_PRIOR = 0.5
_MEASURED = Path(__file__).parent / "measured"


def is_fitted(point: Point) -> bool:
    """Whether a point is fitted to, or held out."""
    pattern = _FITTED_TO.get(point.source)
    return pattern is not None and re.fullmatch(pattern, point.test) is not None


def errors(point: Point, model: BoardModel, gain: float) -> dict[str, float | None]:
    """Relative errors of the simulation at a point, by figure."""
    simulated = simulate(point, model, gain=gain)
    found: dict[str, float | None] = {}
    for name in (*FIGURES, "sm_clock"):
        measured, made = point.figures[name], simulated[name]
        found[name] = None if measured is None or made is None else made / measured - 1
    return found


def with_parameters(model: BoardModel, values: dict[str, float]) -> BoardModel:
    """A board with other parameters, by ``"section.attribute"``."""
    for name, value in values.items():
        section, _, attribute = name.partition(".")
        model = replace(model, **{section: replace(getattr(model, section), **{attribute: value})})
    return model


def parameter(model: BoardModel, name: str) -> float:
    """One parameter of a board, by ``"section.attribute"``."""
    section, _, attribute = name.partition(".")
    return float(getattr(getattr(model, section), attribute))


def search(model: BoardModel, points: Sequence[Point]) -> tuple[BoardModel, dict[str, float]]:
    """Better parameters, and the factors of the boards."""
    from scipy.optimize import least_squares

    if not points:
        raise SystemExit(f"There is no point to fit {model.key} to: see _FITTED_TO in benchmarks/simulation/fit.py.")
    boards = sorted({point.board for point in points})[1:]
    names = [name for name in FITTED if parameter(model, name) > 0]
    start = [math.log(parameter(model, name)) for name in names]

    def candidate(x: Any) -> tuple[BoardModel, dict[str, float]]:
        values = {name: math.exp(value) for name, value in zip(names, x, strict=False)}
        return with_parameters(model, values), dict(zip(boards, map(math.exp, x[len(names) :]), strict=True))

    def residuals(x: Any) -> list[float]:
        tried, gains = candidate(x)
        found = [(value - begun) / _PRIOR for value, begun in zip(x, start, strict=False)]
        for point in points:
            for name, error in errors(point, tried, gains.get(point.board, 1.0)).items():
                if error is not None and name in _WANTED:
                    found.append(math.log1p(error) / _WANTED[name])
        return found

    upper = [math.log(_MOST[name]) if name in _MOST else math.inf for name in names] + [math.inf] * len(boards)
    best = least_squares(
        residuals, [*start, *[0.05] * len(boards)], bounds=([-math.inf] * len(upper), upper), diff_step=0.01,
        loss="soft_l1", max_nfev=20, verbose=2,
    )  # fmt: skip
    return candidate(best.x)


def write(model: BoardModel) -> None:
    """Put the fitted parameters into the board's file, to three digits."""
    file = Path(str(files("pytest_llmperf.simulation") / "boards" / f"{model.key}.toml"))
    text = file.read_text("utf-8")
    for name in FITTED:
        if parameter(model, name) == 0:  # none, and none was fitted
            continue
        attribute = name.partition(".")[2]
        text, count = re.subn(
            rf"(?m)^{attribute} = .*$",
            f'{attribute} = {{ value = {parameter(model, name):.3g}, source = "fit" }}',
            text,
        )
        assert count == 1, f"{attribute} stands {count} times in {file}"
    file.write_text(text, "utf-8")


def table(model: BoardModel, points: Sequence[Point], gains: dict[str, float]) -> list[str]:
    """Markdown: the error at each point, and a summary."""
    lines = [
        "| engine | point | board | TTFT | TPOT | tokens/s | power | SM clock |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    all_errors: dict[str, list[float]] = {name: [] for name in (*FIGURES, "sm_clock")}
    for point in points:
        found = errors(point, model, gains.get(point.board, 1.0))
        for name, error in found.items():
            if error is not None:
                all_errors[name].append(abs(error))
        cells = " | ".join("" if error is None else f"{error:+.1%}" for error in found.values())
        lines.append(f"| {point.source.removeprefix(model.key + '-')} | {point.test} | {point.board} | {cells} |")
    for title, summary in (("median", statistics.median), ("largest", max)):
        cells = " | ".join(f"{summary(values):.1%}" if values else "" for values in all_errors.values())
        lines.append(f"| **{title} of {len(points)}** | | | {cells} |")
    return lines


def gains_of(model: BoardModel, points: Sequence[Point]) -> dict[str, float]:
    """The factor on each board's power: what its points beside the limit say."""
    gains = {}
    for board in sorted({point.board for point in points})[1:]:
        of_board = [point for point in points if point.board == board]
        of_board = list(filter(is_fitted, of_board)) or of_board
        found = 1.0
        for _ in range(3):
            ratios = [errors(p, model, found)["power"] for p in of_board if (p.figures["power"] or 0) < 650]
            found /= 1 + statistics.median(ratio for ratio in ratios if ratio is not None)
        gains[board] = found
    return gains


def main() -> None:
    """Search if asked to, and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("board")
    parser.add_argument("--search", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--markdown", type=Path)
    asked = parser.parse_args()
    model = BoardModel.named(asked.board)
    points = [point for file in sorted(_MEASURED.glob(f"{asked.board}-*.json")) for point in points_of(file)]
    if not points:
        raise SystemExit(f"There are no measured points of {asked.board}: see benchmarks/simulation/README.md.")
    fitted, held_out = ([p for p in points if is_fitted(p) is wanted] for wanted in (True, False))
    if asked.search:
        model, _ = search(model, fitted)
        for name in FITTED:
            print(f"{name:32} {parameter(BoardModel.named(asked.board), name):10.4g} -> {parameter(model, name):.4g}")
        if asked.write:
            write(model)
    gains = gains_of(model, points)
    text = [
        *[f"Factor on the power of board {board}: {gain:.3f}." for board, gain in gains.items()], "",
        f"## Fitted to: {len(fitted)} points", "", *table(model, fitted, gains), "",
        f"## Held out: {len(held_out)} points", "", *table(model, held_out, gains), "",
    ]  # fmt: skip
    print("\n".join(text))
    if asked.markdown:
        asked.markdown.write_text("\n".join(text), "utf-8")


if __name__ == "__main__":
    main()
