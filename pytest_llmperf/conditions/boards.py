"""What the boards and the server said of themselves while a launch was measured.

A figure that is a metric as well is that metric: there is one formula for one thing.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_llmperf.conditions.types import Condition
from pytest_llmperf.metrics import REGISTRY, Missing
from pytest_llmperf.runner import Launch

__all__ = ["CONDITIONS"]

_HZ_PER_MHZ = 1e6
_NOBODY_READ = "no board was read"
#: What limits the clock for the sake of heat; each of them may be told where the others are not.
_THERMAL = ("thermal", "sw_thermal_slowdown", "hw_thermal_slowdown")
_OTHER = ("hw_slowdown", "hw_power_brake_slowdown", "sync_boost", "board_limit", "reliability")


def _metric(name: str) -> Condition:
    """A metric of the boards' readings over the launch."""
    metric = REGISTRY[name]

    def of_launch(launch: Launch) -> float | Missing:
        assert metric.of_launch is not None
        found = metric.of_launch(launch.readings)
        return found if isinstance(found, float | int | Missing) else found.value

    return Condition(name, metric.unit, f"{metric.formula} ({metric.source})", of_launch)


def _share(*causes: str) -> Callable[[Launch], float | Missing]:
    def of_launch(launch: Launch) -> float | Missing:
        if launch.clock is None or not launch.samples:
            return Missing(_NOBODY_READ)
        told = [launch.clock.throttled_by[cause] for cause in causes if cause in launch.clock.throttled_by]
        if not told:
            return Missing(launch.samples[0].refused.get("clock_reasons", "the boards do not tell their throttling"))
        return max(told)  # causes overlap

    return of_launch


def _memory_clock(launch: Launch) -> float | Missing:
    if launch.clock is None or not launch.samples:
        return Missing(_NOBODY_READ)
    if launch.clock.observed_memory_mhz is None:
        return Missing(launch.samples[0].refused.get("memory_clock", "no look at it fell into the repeats"))
    return launch.clock.observed_memory_mhz[1] * _HZ_PER_MHZ


def _temperature(launch: Launch) -> float | Missing:
    if not launch.samples:
        return Missing(_NOBODY_READ)
    hottest = []
    for board in launch.samples:
        seen = [celsius for celsius in board.temperature_c if celsius == celsius]
        if not seen:
            return Missing(board.refused.get("temperature", "it was not read"))
        hottest.append(max(seen))
    return max(hottest)


def _preemptions(launch: Launch) -> float | Missing:
    server = launch.account.server
    if server is None or server.preemptions is None:
        return Missing(_untold(launch))
    return float(server.preemptions)


def _cache_hits(launch: Launch) -> float | Missing:
    server = launch.account.server
    if server is None or server.prefix_cache_hit_rate is None:
        return Missing(_untold(launch))
    return server.prefix_cache_hit_rate


def _untold(launch: Launch) -> str:
    server = launch.account.server
    if server is None:
        return "only a server's own metrics tell it"
    return server.reason or "the server's metrics do not tell it"


_TIME = "of the time in which requests ran, on the board where it was most: of the samples, or by its own account"

CONDITIONS = (
    _metric("sm_clock"),
    Condition("memory_clock", "Hz", "median memory clock while the boards were busy", _memory_clock),
    _metric("power"),
    Condition("power_cap_share", "1", f"share {_TIME}, that the power cap took from the clock", _share("sw_power_cap")),
    Condition("thermal_share", "1", f"share {_TIME}, that heat took from the clock", _share(*_THERMAL)),
    Condition("other_throttle_share", "1", f"share {_TIME}, that {', '.join(_OTHER)} did", _share(*_OTHER)),
    Condition("temperature", "°C", "highest GPU temperature of all boards", _temperature),
    _metric("dram_utilization"),
    _metric("tensor_utilization"),
    _metric("gpu_utilization"),
    _metric("memory_used"),
    Condition("preemptions", "1", "requests put back for lack of KV cache, by the server's metrics", _preemptions),
    Condition("prefix_cache_hit_rate", "1", "prompt tokens found / looked up, by the server's metrics", _cache_hits),
)
