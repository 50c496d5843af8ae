"""A tokenizer small enough to write by hand, loadable without a network: one token a character.

Clients make their prompts with it. They make them differently: of random token ids, of a corpus of English, of invented
sentences. So it has to turn any English into tokens and any ids into text; a vocabulary of words would not. How many
tokens an answer has, the server says.
"""

from __future__ import annotations

import json
from pathlib import Path

__all__ = ["write_tokenizer"]

#: How byte-level BPE writes a space, a tab and a line end.
_WRITTEN = {" ": "\u0120", "\t": "\u0109", "\n": "\u010a"}
_SPECIAL = ("<s>", "</s>")


def write_tokenizer(folder: Path) -> Path:
    """Write a byte-level tokenizer for ASCII without any merges, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    characters = [*_WRITTEN.values(), *map(chr, range(ord("!"), ord("~") + 1))]
    vocabulary = {word: i for i, word in enumerate([*_SPECIAL, *characters])}
    special = [
        {"id": vocabulary[word], "content": word, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for word in _SPECIAL
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary, "merges": [],
        },
    }  # fmt: skip
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>",
        "model_max_length": 65536,
    }  # fmt: skip
    # A config beside it keeps libraries from asking a hub what kind of model this is.
    model = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": len(vocabulary)}
    for name, content in (
        ("tokenizer.json", tokenizer), ("tokenizer_config.json", config), ("config.json", model)
    ):  # fmt: skip
        (folder / name).write_text(json.dumps(content))
    return folder
