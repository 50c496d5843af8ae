"""What does a prompt token add to latency, what an output token, and how near does prefill come to the compute roof?"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_llmperf.findings.fits import Line, least_squares
from pytest_llmperf.findings.points import Point, at_one_clock, group
from pytest_llmperf.findings.telling import (
    Labels,
    Rows,
    column,
    finding,
    listed,
    quantity,
    share,
)
from pytest_llmperf.results import Finding, Results

__all__ = ["lengths"]

#: A constant, a prompt token, an output token: and one point more, so that the fit has something to miss.
_LEAST_POINTS = 4
#: Beside each other as in the published comparison: 512 more prompt tokens, 8 more output tokens.
_PROMPT, _OUTPUT = 512, 8
#: Of so few the median is the mean.
_TWO = 2
#: From so many differences on their quartiles tell how they vary.
_QUARTILES = 4
#: A line that misses a point by more is not told.
_STRAIGHT = 0.05


def lengths(_: Results, points: Sequence[Point], labels: Labels) -> list[Finding]:
    """A finding for each load of two or more prompt and two or more output lengths."""
    told = [
        point
        for point in points
        if isinstance(point.axes.input_len, int) and isinstance(point.axes.output_len, int)
        and point.axes.load != "trace" and point.value("e2e_latency")
    ]  # fmt: skip
    grids = [grid for members in group(told, "input_len", "output_len") if (grid := _grid(members))]
    return [_finding(grid, labels) for grid in at_one_clock(grids) if len(grid) >= _LEAST_POINTS]


def _grid(points: Sequence[Point]) -> list[Point]:
    """The points of a grid among others: each with another of its prompt length, and another of its output length."""
    kept = list(points)
    while True:
        prompts = Counter(point.axes.input_len for point in kept)
        outputs = Counter(point.axes.output_len for point in kept)
        left = [p for p in kept if prompts[p.axes.input_len] > 1 and outputs[p.axes.output_len] > 1]
        if len(left) == len(kept):
            return kept
        kept = left


def _finding(points: Sequence[Point], labels: Labels) -> Finding:
    axes = points[0].axes
    rows: Rows = []
    for point in points:
        latency, ttft = point.value("e2e_latency"), point.value("ttft")
        part = None if ttft is None or latency is None else min(1.0, ttft / latency)
        mfu = point.value("mfu") if point.axes.output_len == 1 else None
        rows.append([_length(point.axes.input_len), _length(point.axes.output_len), latency, ttft, part, mfu])
    columns = [
        column("input_len"), column("output_len"), column("e2e_latency"), column("ttft"),
        column("prompt_share", "Prompt's share of the latency", "1"), column("mfu", "MFU of the prefill"),
    ]  # fmt: skip
    fit = least_squares(
        [(1.0, _length(p.axes.input_len), _length(p.axes.output_len)) for p in points],
        [p.value("e2e_latency") or 0.0 for p in points],
    )
    return finding(
        "lengths",
        labels.name(axes, "input_len", "output_len"),
        labels.title("Latency by prompt and output length", axes, "input_len", "output_len"),
        [
            *_costs(points, labels.subject(axes, "input_len", "output_len")),
            *_line(fit),
            *_share(points),
            *_prefill(points),
        ],
        columns,
        rows,
        points,
    )


def _length(tokens: int | str | None) -> float:
    return float(tokens) if isinstance(tokens, int) else 0.0


@dataclass(frozen=True)
class _Step:
    """From one length to the next one of the grid, at each length of the other kind that has both.

    Attributes:
        first: Tokens.
        last: Likewise, more.
        at: Lengths of the other kind, rising.
        differences: That the latency grows by at these, in seconds.
    """

    first: int
    last: int
    at: tuple[int, ...]
    differences: tuple[float, ...]

    @property
    def seconds(self) -> float:
        """The median of the differences.

        The time to a first token is noisy, and may have two values for one prompt; a single pair of points would tell
        of that as much as of the lengths.
        """
        return statistics.median(self.differences)

    @property
    def is_told(self) -> bool:
        """Whether latency grows by more than its differences vary by.

        Of many that is half the distance of their quartiles, which an outlier does not move; of few, all of which one
        outlier can move, their whole range.
        """
        if len(self.differences) >= _QUARTILES:
            low, _, high = statistics.quantiles(self.differences, n=4, method="inclusive")
            spread = (high - low) / 2
        else:
            spread = max(self.differences) - min(self.differences)
        return self.seconds > 0 and spread <= self.seconds

    def cost(self, tokens: int) -> float:
        """Of so many tokens, as if they all cost the same between the two."""
        return self.seconds / (self.last - self.first) * tokens


def _steps(points: Sequence[Point], along: str, other: str) -> list[_Step]:
    """The steps along one length."""
    known = {(_whole(getattr(p.axes, along)), _whole(getattr(p.axes, other))): p.value("e2e_latency") or 0.0
             for p in points}  # fmt: skip
    found = []
    for one, two in pairwise(sorted({length for length, _ in known})):
        at = tuple(sorted(length for first, length in known if first == one and (two, length) in known))
        if at:
            found.append(_Step(one, two, at, tuple(known[two, length] - known[one, length] for length in at)))
    return found


def _nearest(steps: Sequence[_Step], tokens: int) -> _Step | None:
    """Of those that are told that of nearest to so many tokens; of equals the one from the shortest length."""
    told = [step for step in steps if step.is_told]
    return min(told, key=lambda step: (abs(math.log((step.last - step.first) / tokens)), step.first), default=None)


def _costs(points: Sequence[Point], subject: str) -> list[str]:
    """What more tokens cost where the grid has such steps: attention makes those of long prompts dearer."""
    prompts, outputs = _steps(points, "input_len", "output_len"), _steps(points, "output_len", "input_len")
    prompt, output = _nearest(prompts, _PROMPT), _nearest(outputs, _OUTPUT)
    if prompt is None or output is None:
        return [f"The lengths of this grid do not tell what a prompt token and what an output token cost ({subject})."]
    one, other = quantity(prompt.cost(_PROMPT), "ttft"), quantity(output.cost(_OUTPUT), "ttft")
    word = "less than" if prompt.cost(_PROMPT) < output.cost(_OUTPUT) else "more than"
    told = [
        f"{_PROMPT} more prompt tokens cost {one}, {'as much as' if one == other else word} {_OUTPUT} more output "
        f"tokens, {other} ({subject}; from {prompt.first} to {prompt.last} prompt tokens at {_over(prompt.at)} of "
        f"output, and from {output.first} to {output.last} output tokens at {_over(output.at)} of prompt)."
    ]
    rising = [step for step in prompts if step.is_told]
    least, most = (choose(rising, key=lambda step: step.cost(_PROMPT)) for choose in (min, max))
    ends = [quantity(step.cost(_PROMPT), "ttft") for step in (least, most)]
    if ends[0] != ends[1]:
        told.append(
            f"For each {_PROMPT} prompt tokens it is {ends[0]} from {least.first} to {least.last}, and {ends[1]} from "
            f"{most.first} to {most.last}."
        )
    return [*told, *_not_told(prompts, "prompt"), *_not_told(outputs, "output")]


def _not_told(steps: Sequence[_Step], what: str) -> list[str]:
    """The steps whose differences do not tell what they add."""
    lost = [f"{step.first} to {step.last}" for step in steps if not step.is_told]
    return [f"From {listed(lost)} {what} tokens latency grows by no more than its differences vary by."] if lost else []


def _over(lengths: Sequence[int]) -> str:
    """At which lengths a step was taken."""
    if len(lengths) == 1:
        return str(lengths[0])
    return f"{lengths[0]} to {lengths[-1]} ({'mean' if len(lengths) == _TWO else 'median'} of {len(lengths)})"


def _whole(tokens: int | str | None) -> int:
    return tokens if isinstance(tokens, int) else 0


def _line(fit: Line | None) -> list[str]:
    """The straight line, where the grid is one."""
    if fit is None or fit.worst > _STRAIGHT or min(fit.coefficients) < 0:
        return []
    fixed, prompt, output = fit.coefficients
    return [
        f"Latency = {quantity(fixed, 'ttft')} + {quantity(prompt, 'ttft')} a prompt token + {quantity(output, 'ttft')} "
        f"an output token, by least squares of the relative distances; no point is further from it than "
        f"{fit.worst * 100:.1f} %."
    ]


def _share(points: Sequence[Point]) -> list[str]:
    """The prompt's share of the latency at the two ends of the grid that differ most in it, of those that decode."""
    parts = [
        ((point.value("ttft") or 0) / (point.value("e2e_latency") or 1), point)
        for point in points
        if point.axes.output_len != 1 and point.value("ttft")
    ]
    if len(parts) < 2:
        return []
    low, high = min(parts, key=lambda one: one[0]), max(parts, key=lambda one: one[0])
    ends = [
        f"{share(part)} with {point.axes.input_len} + {point.axes.output_len} tokens" for part, point in (low, high)
    ]
    return [f"The prompt's share of the latency (until the first token) is from {ends[0]} to {ends[1]}."]


def _prefill(points: Sequence[Point]) -> list[str]:
    reached = [
        f"{share(mfu)} with {point.axes.input_len} prompt tokens"
        for point in points
        if point.axes.output_len == 1 and (mfu := point.value("mfu")) is not None
    ]
    return [f"Of the peak FLOP/s prefill reaches {listed(reached)}."] if reached else []
