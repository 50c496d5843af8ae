"""The independent check: parameters of every family against transformers' models, on the meta device.

Each config is given as a file would hold it: what is absent must take the same default here and there.
"""

from __future__ import annotations

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.arithmetic.families.defaults import NESTED_DEFAULTS

from .cases import EXPECTED, PUBLIC, config_of

torch = pytest.importorskip("torch", reason="the independent check builds models with PyTorch")
transformers = pytest.importorskip("transformers", reason="the independent check builds transformers' models")

# transformers and its dependencies deprecate names of their own at import and use.
pytestmark = pytest.mark.filterwarnings("ignore")

LLAMA = {
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 112,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
}
KV = {"num_key_value_heads": 2}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 48}
GPT = {"vocab_size": 1000, "n_embd": 64, "n_layer": 3, "n_head": 8}
MLA = {
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 24,
    "n_routed_experts": 8,
    **EXPERTS,
}

SMALL = [
    ("apertus", {**LLAMA, **KV}),
    ("apertus", {**LLAMA, "attention_bias": True}),
    ("arcee", {**LLAMA, **KV}),
    ("arcee", {**LLAMA, "mlp_bias": True, "attention_bias": True, "tie_word_embeddings": True}),
    ("bloom", {"vocab_size": 1000, "hidden_size": 64, "n_layer": 3, "n_head": 8}),
    ("cohere", {**LLAMA, **KV}),
    ("cohere", {**LLAMA, "use_qk_norm": True, "attention_bias": True}),
    ("cohere2", {**LLAMA, **KV}),
    ("cohere2", {**LLAMA, "num_hidden_layers": 8, "sliding_window": 32}),
    ("deepseek_v2", {**LLAMA, **MLA, "first_k_dense_replace": 1, "q_lora_rank": None}),
    ("deepseek_v2", {**LLAMA, **MLA, "n_shared_experts": 1}),
    ("deepseek_v2", {**LLAMA, **MLA, "attention_bias": True, "mlp_bias": True, "q_lora_rank": 40}),
    ("deepseek_v3", {**LLAMA, **MLA, "num_hidden_layers": 5, "n_group": 1, "topk_group": 1}),
    (
        "deepseek_v3",
        {**LLAMA, **MLA, "q_lora_rank": None, "first_k_dense_replace": 0, "attention_bias": True},
    ),
    ("ernie4_5", {**LLAMA}),
    ("ernie4_5", {**LLAMA, "use_bias": True, "head_dim": 16, "tie_word_embeddings": False}),
    ("ernie4_5_moe", {**LLAMA, "moe_num_experts": 8, "moe_intermediate_size": 48}),
    (
        "ernie4_5_moe",
        {
            **LLAMA,
            "use_bias": True,
            "moe_num_experts": 8,
            "moe_intermediate_size": 48,
            "moe_layer_interval": 2,
        },
    ),
    ("exaone4", {**LLAMA, **KV, "num_hidden_layers": 8}),
    ("exaone4", {**LLAMA, **KV, "sliding_window": 16, "sliding_window_pattern": 2}),
    ("falcon", {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8}),
    (
        "falcon",
        {
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
        },
    ),
    (
        "falcon",
        {
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "num_kv_heads": 2,
            "new_decoder_architecture": True,
            "num_ln_in_parallel_attn": 1,
        },
    ),
    (
        "falcon",
        {
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "multi_query": False,
            "parallel_attn": False,
            "bias": True,
            "alibi": True,
        },
    ),
    ("gemma", {**LLAMA, "num_attention_heads": 16}),
    ("gemma", {**LLAMA, "num_key_value_heads": 1, "head_dim": 16}),
    ("gemma2", {**LLAMA}),
    ("gemma2", {**LLAMA, "head_dim": 16, "attention_bias": True, "sliding_window": 16}),
    ("gemma3_text", {**LLAMA, "num_hidden_layers": 13}),
    ("gemma3_text", {**LLAMA, "head_dim": 16, "sliding_window": 16, "sliding_window_pattern": 3}),
    ("glm", {**LLAMA, "pad_token_id": 0, "head_dim": 16}),
    ("glm", {**LLAMA, "pad_token_id": 0, "attention_bias": False}),
    ("glm4", {**LLAMA, "pad_token_id": 0}),
    ("glm4_moe", {**LLAMA, **EXPERTS, "n_routed_experts": 8}),
    (
        "glm4_moe",
        {**LLAMA, **EXPERTS, **KV, "n_routed_experts": 8, "use_qk_norm": True, "attention_bias": True},
    ),
    ("gpt2", GPT),
    ("gpt2", {**GPT, "n_inner": 100, "n_positions": 77, "tie_word_embeddings": False}),
    ("gpt_bigcode", GPT),
    ("gpt_bigcode", {**GPT, "multi_query": False, "n_inner": 100}),
    ("gpt_neox", {**LLAMA}),
    ("gpt_neox", {**LLAMA, "attention_bias": False, "tie_word_embeddings": True}),
    ("gpt_oss", {**LLAMA, "num_local_experts": 8}),
    ("gpt_oss", {**LLAMA, "num_local_experts": 8, "attention_bias": False, "head_dim": 16, **KV}),
    ("gptj", {**GPT, "rotary_dim": 8}),
    ("granite", {**LLAMA, **KV}),
    ("granitemoe", {**LLAMA, **KV, "num_local_experts": 8}),
    ("granitemoeshared", {**LLAMA, **KV, "num_local_experts": 8}),
    (
        "granitemoeshared",
        {**LLAMA, "num_local_experts": 4, "shared_intermediate_size": 40, "attention_bias": True},
    ),
    ("hunyuan_v1_dense", {**LLAMA, "head_dim": 16}),
    ("llama", {**LLAMA}),
    ("llama", {**LLAMA, **KV, "head_dim": 16, "attention_bias": True, "mlp_bias": True}),
    ("llama", {**LLAMA, "num_key_value_heads": None, "tie_word_embeddings": True}),
    ("minimax_m2", {**LLAMA, "num_local_experts": 16}),
    ("ministral", {**LLAMA, "head_dim": 8}),
    ("ministral3", {**LLAMA}),
    ("mistral", {**LLAMA}),
    ("mistral", {**LLAMA, **KV, "head_dim": 16, "sliding_window": None}),
    ("mixtral", {**LLAMA, "num_local_experts": 8}),
    ("mixtral", {**LLAMA, **KV, "num_local_experts": 4, "num_experts_per_tok": 1, "head_dim": 16}),
    ("mpt", {"vocab_size": 1000, "d_model": 64, "n_layers": 3, "n_heads": 8}),
    ("nemotron", {**LLAMA, **KV}),
    ("nemotron", {**LLAMA, **KV, "attention_bias": True, "mlp_bias": True, "head_dim": 16}),
    ("olmo", {**LLAMA}),
    ("olmo2", {**LLAMA, **KV}),
    ("olmo3", {**LLAMA, "num_hidden_layers": 9}),
    ("olmoe", {**LLAMA, "num_experts": 16}),
    (
        "opt",
        {
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "ffn_dim": 80,
        },
    ),
    (
        "opt",
        {
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "ffn_dim": 80,
            "word_embed_proj_dim": 32,
            "do_layer_norm_before": False,
        },
    ),
    (
        "opt",
        {
            "vocab_size": 1000,
            "hidden_size": 64,
            "num_hidden_layers": 3,
            "num_attention_heads": 8,
            "ffn_dim": 80,
            "enable_bias": False,
            "layer_norm_elementwise_affine": False,
        },
    ),
    ("phi", {**LLAMA}),
    ("phi", {**LLAMA, **KV, "qk_layernorm": True}),
    ("phi3", {**LLAMA, "pad_token_id": 0}),
    ("phi3", {**LLAMA, **KV, "sliding_window": 16, "tie_word_embeddings": True, "pad_token_id": 0}),
    ("phimoe", {**LLAMA, "num_local_experts": 16}),
    ("phimoe", {**LLAMA, "attention_bias": True, "lm_head_bias": True, "num_local_experts": 4}),
    ("qwen2", {**LLAMA, "num_attention_heads": 32}),
    ("qwen2", {**LLAMA, **KV, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    (
        "qwen2_moe",
        {
            **LLAMA,
            **EXPERTS,
            "num_attention_heads": 16,
            "num_experts": 12,
            "shared_expert_intermediate_size": 56,
        },
    ),
    (
        "qwen2_moe",
        {
            **LLAMA,
            **KV,
            **EXPERTS,
            "num_experts": 6,
            "qkv_bias": False,
            "decoder_sparse_step": 2,
            "shared_expert_intermediate_size": 56,
            "use_sliding_window": True,
        },
    ),
    ("qwen3", {**LLAMA, **KV}),
    ("qwen3", {**LLAMA, **KV, "head_dim": 16, "attention_bias": True, "tie_word_embeddings": True}),
    ("qwen3_moe", {**LLAMA, **EXPERTS, "num_experts": 16}),
    (
        "qwen3_moe",
        {**LLAMA, **KV, **EXPERTS, "num_experts": 8, "mlp_only_layers": [1], "attention_bias": True},
    ),
    ("seed_oss", {**LLAMA}),
    ("seed_oss", {**LLAMA, **KV, "attention_out_bias": True, "mlp_bias": True, "attention_bias": False}),
    ("smollm3", {**LLAMA, "pad_token_id": 0}),
    (
        "smollm3",
        {**LLAMA, "pad_token_id": 0, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    ),
    ("stablelm", {**LLAMA, "num_attention_heads": 32}),
    ("stablelm", {**LLAMA, **KV, "use_qkv_bias": True, "qk_layernorm": True, "use_parallel_residual": True}),
    ("starcoder2", {**LLAMA}),
    ("starcoder2", {**LLAMA, "use_bias": False, "sliding_window": 16, "tie_word_embeddings": False}),
]


def build(model_type, keys):
    config = transformers.AutoConfig.for_model(model_type, **keys)
    with torch.device("meta"):
        return config, transformers.AutoModelForCausalLM.from_config(config)


def unique_params(model):
    return sum(parameter.numel() for parameter in model.parameters())


def names_table(name):
    return any(
        part in name for part in ("embed_tokens", "wte", "wpe", "word_embeddings.", "embed_in", "embed_positions")
    )


def multiplied(model, selected, experts):
    """Matrices that one token meets: of three-dimensional ones (experts) the share that it selects."""
    total = 0
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if parameter.dim() == 3:
            total += parameter.numel() * selected // experts
        elif parameter.dim() == 2 and not names_table(name) and "bias" not in name and "norm" not in name:
            total += parameter.numel()
    return total


@pytest.mark.parametrize(("model_type", "keys"), SMALL, ids=lambda value: value if isinstance(value, str) else "")
def test_a_small_model_of_each_family_agrees_exactly(model_type, keys):
    config, model = build(model_type, keys)
    architecture = Architecture.from_config({"model_type": model_type, **keys})

    assert architecture.total_params == unique_params(model)
    experts = next(
        (
            getattr(config, key)
            for key in ("num_local_experts", "n_routed_experts", "num_experts")
            if getattr(config, key, None)
        ),
        1,
    )
    selected = getattr(config, "num_experts_per_tok", None) or 1
    assert architecture.matmul_params == multiplied(model, selected, experts)


@pytest.mark.parametrize(("model_type", "keys"), SMALL, ids=lambda value: value if isinstance(value, str) else "")
def test_the_saved_form_of_a_config_agrees_too(model_type, keys):
    config = transformers.AutoConfig.for_model(model_type, **keys)
    saved = config.to_dict()
    saved.pop("dtype", None)
    assert (
        Architecture.from_config(saved).decoder == Architecture.from_config({"model_type": model_type, **keys}).decoder
    )


@pytest.mark.parametrize(("model_type", "keys"), SMALL, ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_layers_slide(model_type, keys):
    config = transformers.AutoConfig.for_model(model_type, **keys)
    window = getattr(config, "sliding_window", None) or None
    types = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    layers = Architecture.from_config({"model_type": model_type, **keys}).decoder.layers
    assert [layer.attention.window for layer in layers] == [
        window if name == "sliding_attention" else None for name in types
    ]


FULL_SIZE = {name: case["config"] for name, case in PUBLIC.items()} | {name: config_of(name) for name in EXPECTED}


@pytest.mark.parametrize("name", sorted(FULL_SIZE))
def test_a_published_model_agrees_exactly(name):
    keys = dict(FULL_SIZE[name])
    # The quantised form would need its own kernels, and has the parameters of the plain one.
    keys.pop("quantization_config", None)
    _, model = build(keys.pop("model_type"), keys)
    assert Architecture.from_config(FULL_SIZE[name]).total_params == unique_params(model)


@pytest.mark.parametrize("model_type", sorted(NESTED_DEFAULTS))
def test_the_sizes_that_a_nested_config_may_leave_out(model_type):
    config = transformers.CONFIG_MAPPING[model_type]()
    assert NESTED_DEFAULTS[model_type] == {key: getattr(config, key) for key in NESTED_DEFAULTS[model_type]}


@pytest.mark.parametrize(
    ("outer", "text"),
    [
        ("gemma3", {"model_type": "gemma3_text", **LLAMA, "head_dim": 16}),
        ("llava", {"model_type": "llama", **LLAMA}),
        ("qwen2_5_vl", {"model_type": "qwen2_5_vl_text", **LLAMA}),
        ("qwen2_vl", {"model_type": "qwen2_vl_text", **LLAMA, "num_key_value_heads": 4}),
        ("qwen3_vl", {"model_type": "qwen3_vl_text", **LLAMA, **KV}),
    ],
)
def test_the_language_model_of_a_multimodal_one_agrees(outer, text):
    config = transformers.CONFIG_MAPPING[outer](text_config=text)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    visual = ("visual", "vision", "projector")
    expected = sum(
        parameter.numel() for name, parameter in model.named_parameters() if not any(part in name for part in visual)
    )
    assert Architecture.from_config({"model_type": outer, "text_config": text}).total_params == expected
