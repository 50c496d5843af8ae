"""Steps of models, and a board that adds nothing to the roofline."""

from __future__ import annotations

import json
from functools import cache
from math import inf
from pathlib import Path

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.models import resolve
from pytest_llmperf.simulation.steps import Work
from tests.simulation.round_numbers import altered, round_board

CONFIGS = Path(__file__).parents[1] / "arithmetic" / "data" / "configs"
MISTRAL = resolve("mistral-7b").config
LAYERS, KV_HEADS, HIDDEN = 32, 8, 4096
#: Of the H200.
BANDWIDTH, FLOPS, TOP, MEMORY = 4.8e12, 989.4e12, 1980, 3201

#: The roofline alone: peaks are reached at every clock, the longer of two times counts, and nothing is added.
ROOF = altered(
    round_board(),
    memory={"weights_share": 1.0, "cache_share": 1.0, "cache_share_8bit": 1.0, "knee_mhz": 1.0},
    compute={
        "matmul_share": 1.0, "attention_share": 1.0, "blend": inf,
        "token_s": 0.0, "head_s": 0.0, "sequence_s": 0.0, "layer_s": 0.0, "step_s": 0.0,
    },
    links={"latency_s": 0.0, "bandwidth": inf},
)  # fmt: skip


@cache
def model(changes="{}"):
    return Architecture.from_config({**MISTRAL, **json.loads(changes)})


def public(name):
    return Architecture.from_config(CONFIGS / f"{name}.json")


def roof(**changes):
    return altered(ROOF, **changes)


def decodes(steps, batch, context):
    """A step of as many sequences with so much context each, the new token included."""
    cache_bytes, flops = batch * steps.cache_bytes(context), batch * steps.attention_flops(context)
    return steps.work((), sampled=batch, decodes=batch, cache_bytes=cache_bytes, attention_flops=flops)


def prompts(steps, *chunks, sampled=None):
    """A step of prompts alone: of each, the tokens computed before and now."""
    sampled = len(chunks) if sampled is None else sampled
    return steps.work(chunks, sampled=sampled, decodes=0, cache_bytes=0, attention_flops=0)


def nothing(**values):
    """A step that does nothing but what is said."""
    return Work(**{**dict.fromkeys(Work._fields, 0), "weight_bytes": 1e-9, **values})


def seconds(steps, work, sm_mhz=TOP, memory_mhz=MEMORY):
    return steps.pace(work, sm_mhz, memory_mhz).seconds
