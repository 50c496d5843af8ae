from __future__ import annotations

import pytest

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.errors import ArchitectureError

from .cases import PUBLIC, SMALL, config_of

# 4 projections and 3 of the feed-forward block in each of 3 layers.
HIDDEN, KV, WIDTH, LAYERS = 64, 16, 112, 3
SHAPES = [
    (HIDDEN, HIDDEN),
    (HIDDEN, KV),
    (HIDDEN, KV),
    (HIDDEN, HIDDEN),
    (HIDDEN, WIDTH),
    (HIDDEN, WIDTH),
    (WIDTH, HIDDEN),
]
QUANTISED = LAYERS * sum(inputs * outputs for inputs, outputs in SHAPES)
OUTPUTS = LAYERS * sum(outputs for _, outputs in SHAPES)
MATRICES = LAYERS * len(SHAPES)


def groups(size):
    return LAYERS * sum(-(-inputs // size) * outputs for inputs, outputs in SHAPES)


def stored(**quantization):
    return Architecture.from_config({**SMALL, "quantization_config": quantization})


def rest():
    return 2 * (Architecture.from_config(SMALL).total_params - QUANTISED)


W8 = {"num_bits": 8, "type": "float", "symmetric": True}
W4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}


def compressed(weights, **more):
    group = {"targets": ["Linear"], "weights": weights, **more.pop("group", {})}
    settings = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    return {**settings, **more}


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 32}, QUANTISED // 2 + groups(32) * 5 // 2),
        (
            {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": False},
            QUANTISED // 2 + groups(32) * 2,
        ),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32}, QUANTISED // 2 + groups(32) * 5 // 2),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, QUANTISED // 2 + groups(32) * 5 // 2),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, QUANTISED + OUTPUTS * 3),
        (
            {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True},
            QUANTISED // 2 + groups(32) * 5 // 2 + 4 * LAYERS * sum(inputs for inputs, _ in SHAPES),
        ),
        ({"quant_method": "fp8"}, QUANTISED + 4 * MATRICES),
        ({"quant_method": "fp8", "activation_scheme": "static"}, QUANTISED + 8 * MATRICES),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, QUANTISED + 4 * MATRICES),
        ({"quant_method": "fbgemm_fp8"}, QUANTISED + 4 * OUTPUTS),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, QUANTISED + 4 * OUTPUTS),
        ({"load_in_4bit": True, "_load_in_4bit": True}, QUANTISED // 2 + 4 * QUANTISED // 64),
        (compressed({**W8, "strategy": "channel"}), QUANTISED + 2 * OUTPUTS),
        (compressed({**W8, "strategy": "tensor"}), QUANTISED + 2 * MATRICES),
        (compressed({**W8, "strategy": "block", "block_structure": [128, 128]}), QUANTISED + 2 * MATRICES),
        (compressed(W4), QUANTISED // 2 + groups(32) * 2),
        (compressed({**W4, "symmetric": False}), QUANTISED // 2 + groups(32) * 5 // 2),
        (
            compressed({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}),
            QUANTISED // 2 + groups(16) + 4 * MATRICES,
        ),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, QUANTISED + 8 * MATRICES),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, QUANTISED // 2 + groups(16) + 8 * MATRICES),
    ],
    ids=lambda value: value.get("quant_method", "bare") if isinstance(value, dict) else "",
)
def test_stored_bytes(settings, size):
    model = stored(**settings)
    assert model.weight_bytes() == size + rest()
    assert model.quantized_params == QUANTISED
    assert model.total_params == Architecture.from_config(SMALL).total_params
    assert model.weight_bytes("bfloat16") == 2 * model.total_params


def test_nested_scales_of_bitsandbytes():
    model = stored(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_use_double_quant=True)
    scales = 0
    for inputs, outputs in SHAPES:
        blocks = inputs * outputs // 64
        scales += blocks + 4 * -(-blocks // 256) + 4
    assert model.weight_bytes() == QUANTISED // 2 + LAYERS * scales + rest()


@pytest.mark.parametrize(("name", "size"), [("gpt-oss-20b", 13_761_264_768), ("gpt-oss-120b", 65_248_815_744)])
def test_mxfp4_as_published(name, size):
    """The bytes of the tensors in the published checkpoints, from their index files."""
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    model = Architecture.from_config(
        {
            **PUBLIC[name]["config"],
            "torch_dtype": "bfloat16",
            "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": skipped},
        }
    )
    assert model.weight_bytes() == size


def test_blocks_as_in_deepseek_v3():
    model = Architecture.from_config(
        {
            **PUBLIC["deepseek-v3"]["config"],
            "torch_dtype": "bfloat16",
            "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
        }
    )
    kept = model.total_params - model.quantized_params
    scales = model.weight_bytes() - model.quantized_params - 2 * kept
    # One 32-bit scale for every 128 x 128 weights, a little more where a matrix ends inside a block.
    assert 0 <= scales / (model.quantized_params / 128**2 * 4) - 1 < 0.01
    assert model.matmul_dtype == "float8"


class TestExceptions:
    @pytest.mark.parametrize(
        ("settings", "left"),
        [
            ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["down_proj"]}, LAYERS),
            ({"quant_method": "fp8", "modules_to_not_convert": ["model.layers.1"]}, 7),
            ({"quant_method": "fp8", "ignored_layers": ["model.layers.1.mlp.up_proj", "lm_head"]}, 1),
            (
                {
                    "quant_method": "bitsandbytes",
                    "load_in_8bit": True,
                    "llm_int8_skip_modules": ["self_attn"],
                },
                12,
            ),
            ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*layers\\.0\\..*": {}}}, 7),
            ({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": [["mlp.up_proj"]]}, 18),
            (compressed(W4, ignore=["re:.*self_attn.*", "lm_head"]), 12),
            (compressed(W4, ignore=["model.layers.2.mlp.down_proj", "lm_head"]), 1),
            (compressed(W4, group={"targets": ["re:.*mlp.*"]}), 12),
            (
                {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head", "model.layers.0*"]},
                7,
            ),
        ],
        ids=lambda value: value["quant_method"] if isinstance(value, dict) else "",
    )
    def test_modules_left_alone(self, settings, left):
        model = stored(**settings)
        kept = [name for name, _ in model.decoder.matrices() if model.quantization.choose(name) is None]
        assert len(kept) == left

    def test_the_output_projection_only_when_told(self):
        head = SMALL["hidden_size"] * SMALL["vocab_size"]
        plain = stored(quant_method="gptq", bits=4, group_size=32)
        assert stored(quant_method="gptq", bits=4, group_size=32, lm_head=True).quantized_params == (
            plain.quantized_params + head
        )
        assert stored(**compressed(W4, ignore=[])).quantized_params == QUANTISED + head

    def test_other_bits_for_some(self):
        rules = {"+:.*down_proj": {"bits": 8, "group_size": 32}}
        model = stored(quant_method="gptq", bits=4, group_size=32, dynamic=rules)
        plain = stored(quant_method="gptq", bits=4, group_size=32)
        downs, scales = LAYERS * WIDTH * HIDDEN, LAYERS * 4 * HIDDEN
        assert model.weight_bytes() - plain.weight_bytes() == downs // 2 + scales // 2

    def test_routers_are_never_quantised(self):
        config = {**SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
        model = Architecture.from_config({**config, "quantization_config": {"quant_method": "fp8"}})
        router = LAYERS * HIDDEN * 4
        attention = LAYERS * sum(inputs * outputs for inputs, outputs in SHAPES[:4])
        assert model.quantized_params == attention + 4 * LAYERS * 3 * HIDDEN * WIDTH
        assert model.total_params - model.quantized_params > router

    def test_names_inside_a_multimodal_model(self):
        settings = compressed(W4, ignore=["re:.*lm_head", "model.language_model.layers.0.mlp.up_proj"])
        outer = {"model_type": "x", "text_config": SMALL, "quantization_config": settings}
        model = Architecture.from_config(outer)
        assert model.quantized_params == QUANTISED - HIDDEN * WIDTH


class TestServing:
    def test_quantised_while_loading(self):
        model = Architecture.from_config(SMALL).served_as(quantization="fp8")
        assert model.weight_bytes() == stored(quant_method="fp8").weight_bytes()
        assert model.matmul_dtype == "float8"

    def test_told_what_the_checkpoint_is_anyway(self):
        model = Architecture.from_config(config_of("qwen2.5-7b-instruct-awq"))
        for name in ("awq", "awq_marlin"):
            assert model.served_as(quantization=name).weight_bytes() == model.weight_bytes()

    def test_a_method_that_needs_a_checkpoint(self):
        with pytest.raises(ArchitectureError, match="'awq'"):
            Architecture.from_config(SMALL).served_as(quantization="awq")

    @pytest.mark.parametrize(
        ("activations", "dtype"),
        [
            (None, "bfloat16"),
            ({"num_bits": 8, "type": "float"}, "float8"),
            ({"num_bits": 8, "type": "int"}, "int8"),
        ],
    )
    def test_what_is_multiplied(self, activations, dtype):
        model = stored(**compressed({**W8, "strategy": "channel"}, group={"input_activations": activations}))
        assert model.matmul_dtype == dtype


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"quant_method": "aqlm"}, "quant_method"),
        ({"quant_method": 7}, "quant_method"),
        ({}, "quant_method"),
        ({"quant_method": "gptq"}, "bits"),
        ({"quant_method": "gptq", "bits": "4"}, "bits"),
        ({"quant_method": "gptq", "bits": 64}, "bits"),
        ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size"),
        ({"quant_method": "awq", "bits": 4, "group_size": -2}, "group_size"),
        ({"quant_method": "awq", "bits": 4, "zero_point": "yes"}, "zero_point"),
        ({"quant_method": "awq", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [128, 0]}, "weight_block_size"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        ({"quant_method": "modelopt"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quant_algo"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        (compressed(W4, format="marlin-24"), "format"),
        (compressed(W4, sparsity_config={"format": "sparse-24-bitmask"}), "format"),
        (compressed(W4, ignore=["re:("]), "ignore"),
        (compressed({**W4, "group_size": None}), "group_size"),
        (compressed({**W8, "strategy": "odd"}), "strategy"),
        (compressed(W4, group={"targets": []}), "targets"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:(": {}}}, "-:("),
    ],
)
def test_settings_that_are_not_known_are_named(settings, key):
    with pytest.raises(ArchitectureError) as caught:
        stored(**settings)
    assert "`quantization_config." in str(caught.value)
    assert f"{key}`" in str(caught.value)
