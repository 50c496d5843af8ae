"""Configs and the numbers they must give."""

from __future__ import annotations

import json
from pathlib import Path

DATA = Path(__file__).parent / "data"
CONFIGS = DATA / "configs"

EXPECTED = json.loads((DATA / "expected.json").read_text())
CONVENTIONS = EXPECTED.pop("_conventions")
PUBLIC = json.loads((DATA / "public.json").read_text())

SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


def config_of(name):
    return json.loads((CONFIGS / f"{name}.json").read_text())
