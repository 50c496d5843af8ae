"""When a condition counts as moved, and in which direction it would go with a slower engine.

A condition counts as moved when it lies further from the baseline's median than the baseline's own launches lie apart,
and by at least what its rule names: less is how finely it is read, or nothing that shows in a latency.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

__all__ = ["CONSEQUENCES", "ESSENTIAL", "GROUPS", "OF_SERVERS", "PARTS", "RULES", "Rule"]


@dataclass(frozen=True)
class Rule:
    """How one condition is judged.

    Attributes:
        title: What it is called in a sentence.
        least: The least change that counts: in the condition's unit, or as a share of the baseline's value.
        relative: Which of the two.
        slower: The direction that goes with a slower engine; ``None`` when neither does.
        why: Where the least change comes from.
    """

    title: str
    least: float
    relative: bool
    slower: Literal["lower", "higher"] | None
    why: str


#: In the order in which they are told.
RULES: Mapping[str, Rule] = {
    "sm_clock": Rule("the SM clock", 0.01, True, "lower", "neighbouring clocks lie 15 MHz apart: 0.8 % of 1980 MHz"),
    "memory_clock": Rule("the memory clock", 0.01, True, "lower", "it has few values, and they lie far apart"),
    "power_cap_share": Rule("the share of the time under the power cap", 0.05, False, "higher", "a big board "
                            "touches its cap for moments in any run"),
    "thermal_share": Rule("the share of the time throttled by heat", 0.01, False, "higher", "there should be none"),
    "other_throttle_share": Rule("the share of the time throttled otherwise", 0.01, False, "higher", "likewise"),
    "temperature": Rule("the temperature", 5.0, False, "higher", "leakage goes up by about 1 % in 5 K"),
    "batch_occupancy": Rule("the number of requests running", 0.05, True, None, "a step of decoding reads the weights "
                            "once, however many run"),
    "dram_utilization": Rule("the DRAM utilisation", 0.02, False, "lower", "the counters are read in whole percent"),
    "tensor_utilization": Rule("the tensor cores' utilisation", 0.02, False, "lower", "likewise"),
    "gpu_utilization": Rule("the GPU utilisation", 0.05, False, "lower", "a share of sampling periods, in percent"),
    "preemptions": Rule("the number of preemptions", 1.0, False, "higher", "each one is a prefill done twice"),
    "prefix_cache_hit_rate": Rule("the prefix cache's hit rate", 0.01, False, "lower", "chance prompts share less"),
    "client_overhead": Rule("the client's overhead", 1e-4, False, "higher", "how much later a process wakes up now and "
                            "then"),
    "send_delay": Rule("the delay of sending", 1e-4, False, "higher", "likewise"),
    "power": Rule("the power", 0.03, True, None, "boards of one temperature and clock repeat within 1 to 2 %"),
    "memory_used": Rule("the memory in use", 0.02, True, None, "allocators round up"),
    "repeat_spread": Rule("the spread between repeats", 0.02, False, "higher", "a sign of something else at work"),
}  # fmt: skip

#: The parts of a latency, in the order of a request's life, and what each is called. They add up.
PARTS: Mapping[str, str] = {
    "send_delay": "sending",
    "queue_time": "queueing",
    "prefill_time": "prefill",
    "decode_time": "decode",
    "client_overhead": "delivery to the client",
}

#: What follows from the time that something takes: the same work in more of it is less work a second.
CONSEQUENCES = frozenset({"dram_utilization", "tensor_utilization", "gpu_utilization", "power"})

#: How conditions are called that did not move; others are not worth a word then.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "clocks": ("sm_clock", "memory_clock"),
    "throttling": ("power_cap_share", "thermal_share", "other_throttle_share"),
    "temperature": ("temperature",),
    "power": ("power",),
    "number of requests running": ("batch_occupancy",),
    "client": ("send_delay", "client_overhead"),
    "preemptions": ("preemptions",),
    "cache hits": ("prefix_cache_hit_rate",),
}

#: Conditions whose absence is worth a word.
ESSENTIAL = ("sm_clock", "power_cap_share", "thermal_share", "temperature", "power")
#: Those that servers alone tell.
OF_SERVERS = ("preemptions", "prefix_cache_hit_rate")
