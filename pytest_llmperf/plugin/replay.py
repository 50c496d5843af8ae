"""The pytest-benchmark record of a test: the measured times, played back through that plugin's own API.

The times were measured over several launches, so they cannot be taken by pytest-benchmark's timer. Its timer is
therefore set to a clock of ours, which a replayed call advances by the time that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

__all__ = ["ReplayClock", "add_timer", "replay", "spare_table"]


#: Options of pytest-benchmark that say how its table looks, as they are when nobody set them, and what belongs to it.
_LOOKS = {"sort": "min", "group_by": "group", "name": "normal"}
_PARTS = ("columns", "time_unit", "histogram", "verbose", "compare", "compare_fail", "cprofile")


class ReplayClock:
    """A timer that shows what it was set to."""

    __name__ = "replayed"

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time that was set, in seconds."""
        return self.now_s


def add_timer(item: pytest.Item, clock: ReplayClock) -> None:
    """Give a test's benchmark fixture our timer, keeping what its own benchmark markers say."""
    said: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers("benchmark"))):
        said.update(mark.kwargs)
    item.add_marker(pytest.mark.benchmark(**{**said, "timer": clock}), append=False)


def spare_table(config: pytest.Config) -> None:
    """Leave out pytest-benchmark's table where it would only repeat ours; its files and comparisons stay.

    Repeats of different workloads are nothing to rank by time, and the table is wider than most terminals. It is left
    as it is where a test of the user's own is in it, and where the command line or the ini file asks for any of it.
    """
    session = getattr(config, "_benchmarksession", None)
    benchmarks = list(getattr(session, "benchmarks", ()))
    if not benchmarks or not all("llmperf" in one.extra_info for one in benchmarks):
        return
    looks = [config.getoption(f"benchmark_{name}", unset) != unset for name, unset in _LOOKS.items()]
    parts = [config.getoption(f"benchmark_{name}", None) for name in _PARTS]
    if session is not None and not any([*looks, *parts]):
        session.quiet = True


def replay(benchmark: Any, clock: ReplayClock, seconds: Sequence[float], extra_info: Mapping[str, Any]) -> None:
    """Record the times of the repeats as the rounds of one benchmark.

    Args:
        benchmark: The benchmark fixture, or ``None`` when pytest-benchmark is off.
        clock: The timer that the fixture was given.
        seconds: One value a repeat.
        extra_info: Kept with the record.
    """
    if benchmark is None or getattr(benchmark, "stats", None) is not None:
        return  # switched off, or the test has used the fixture for something of its own
    if not seconds:
        benchmark.skipped = True  # nothing was measured, and pytest-benchmark need not warn that it was not used
        return
    left = iter(seconds)

    def one_repeat() -> None:
        clock.now_s += next(left, 0.0)

    benchmark.extra_info.update(extra_info)
    benchmark.pedantic(one_repeat, rounds=len(seconds), iterations=1)
