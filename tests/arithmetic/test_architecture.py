from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.arithmetic import Architecture, expected_distinct_experts
from pytest_llmperf.errors import ArchitectureError

from .cases import CONFIGS, EXPECTED, PUBLIC, SMALL, config_of

NAMES = sorted(EXPECTED)


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def architecture(name):
    return Architecture.from_config(CONFIGS / f"{name}.json")


def test_parameters_are_exact(name, architecture):
    expected = EXPECTED[name]
    assert architecture.total_params == expected["total_params"]
    assert architecture.active_params == expected["active_params_per_token"]
    assert architecture.embedding_params == expected["input_embedding_params"]
    assert architecture.tied_embeddings is expected["tied_embeddings"]
    assert architecture.matmul_params == expected["matmul_params_per_token"]
    assert architecture.position_params == expected.get("position_embedding_params", 0)


def test_weight_bytes_are_exact(name, architecture):
    expected = EXPECTED[name]
    assert architecture.weight_bytes("bfloat16") == expected["weight_bytes_bf16"]
    assert architecture.decode_weight_bytes(1, "bfloat16") == expected["decode_weight_read_bytes_bf16_batch1"]
    assert architecture.decode_read_bytes(1, 0, "bf16") == expected["decode_weight_read_bytes_bf16_batch1"]
    if "weight_bytes_as_stored" in expected:
        assert architecture.weight_bytes() == expected["weight_bytes_as_stored"]
        assert architecture.quantized_params == expected["quantised_params"]
        assert architecture.decode_weight_bytes(1) == expected["decode_weight_read_bytes_as_stored_batch1"]


def test_kv_bytes_are_exact(name, architecture):
    expected = EXPECTED[name]
    assert architecture.kv_bytes_per_token("bf16") == expected["kv_bytes_per_token_bf16"]
    assert architecture.kv_bytes_per_token("fp8") == expected["kv_bytes_per_token_fp8"]
    windows = [layer.attention.window for layer in architecture.decoder.layers]
    assert windows.count(None) == expected["kv_layers_full"]
    assert len(windows) - windows.count(None) == expected["kv_layers_sliding"]
    assert {window for window in windows if window} == {expected["sliding_window"]} - {None}
    for context, size in expected["kv_cache_bytes_bf16_one_sequence"].items():
        assert architecture.kv_bytes(int(context), "bf16") == size
        read = architecture.decode_read_bytes(1, int(context), "bf16")
        assert read == expected["decode_weight_read_bytes_bf16_batch1"] + size


def test_flops_are_exact(name, architecture):
    expected = EXPECTED[name]
    assert architecture.weight_flops_per_token == expected["weight_flops_per_token"]
    attention = expected["attention_flops_per_decode_token_per_context_token"]
    if isinstance(attention, int):
        attention = {"full_layers": attention, "sliding_layers": 0, "window": 1}
    for context in (0, 1, 1000, 20000):
        flops = attention["full_layers"] * context
        flops += attention["sliding_layers"] * min(context, attention["window"])
        assert architecture.flops_per_token(context) == expected["weight_flops_per_token"] + flops


def test_experts_touched_are_exact(name):
    expected = EXPECTED[name]
    touched = expected.get("expected_distinct_experts_per_layer_uniform_routing", {})
    for batch, experts in touched.items():
        value = expected_distinct_experts(expected["num_experts"], expected["experts_per_token"], int(batch))
        assert value == pytest.approx(experts, abs=5e-5)


def test_tensor_parallel_keeps_each_head_once_or_more():
    expected = EXPECTED["llama-2-70b"]["tensor_parallel_kv_bytes_per_token_bf16"]
    model = Architecture.from_config(CONFIGS / "llama-2-70b.json")
    assert model.kv_bytes_per_token("bf16", tensor_parallel=8) == expected["tp8_total"]
    assert model.kv_bytes_per_token("bf16", tensor_parallel=8) // 8 == expected["tp8_per_rank"]
    assert model.kv_bytes_per_token("bf16", tensor_parallel=16) == expected["tp16_total"]
    assert model.kv_bytes_per_token("bf16", tensor_parallel=16) // 16 == expected["tp16_per_rank"]


def test_the_checks_of_the_definitions():
    llama = Architecture.from_config(CONFIGS / "llama-2-70b.json")
    assert llama.kv_bytes(1024) == 335_544_320
    assert llama.weight_bytes() == 137_953_296_384
    assert Architecture.from_config(CONFIGS / "mistral-7b-v0.1.json").total_params == 7_241_732_096


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_published_parameter_counts(name):
    assert Architecture.from_config(PUBLIC[name]["config"]).total_params == PUBLIC[name]["params"]


@pytest.mark.parametrize(
    ("config", "params"),
    [
        (
            {
                "model_type": "internlm2",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "vocab_size": 92544,
                "bias": False,
            },
            7_737_708_544,
        ),
        (
            {
                "model_type": "chatglm",
                "hidden_size": 4096,
                "ffn_hidden_size": 13696,
                "num_layers": 40,
                "num_attention_heads": 32,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
                "kv_channels": 128,
                "padded_vocab_size": 151552,
                "add_qkv_bias": True,
            },
            9_399_951_360,
        ),
    ],
    ids=["internlm2-7b", "glm-4-9b-chat"],
)
def test_published_counts_of_families_with_code_of_their_own(config, params):
    assert Architecture.from_config(config).total_params == params


class TestReading:
    def test_a_folder_a_file_and_a_mapping_are_the_same(self, tmp_path):
        (tmp_path / "config.json").write_text(json.dumps(SMALL))
        models = [Architecture.from_config(origin) for origin in (tmp_path, tmp_path / "config.json", SMALL)]
        assert models[0] == models[1] == models[2]
        assert Architecture.from_config(str(tmp_path)) == models[0]

    def test_a_nested_text_config_takes_what_is_above_it(self):
        nested = {key: value for key, value in SMALL.items() if key != "torch_dtype"}
        outer = {"model_type": "llava", "text_config": nested, "torch_dtype": "float16"}
        outer["tie_word_embeddings"] = True
        model = Architecture.from_config(outer)
        assert model.dtype == "float16"
        assert model.tied_embeddings
        assert "language model alone" in model.notes[0]

    def test_a_nested_text_config_is_the_difference_from_its_family(self):
        gemma = {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "model_type": "gemma3_text",
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        }
        model = Architecture.from_config({"model_type": "gemma3", "text_config": gemma, "dtype": "bfloat16"})
        assert model.total_params == 3_880_263_168
        with pytest.raises(ArchitectureError, match="num_attention_heads"):
            Architecture.from_config(gemma)

    def test_dtype_under_its_new_name(self):
        config = {**SMALL, "torch_dtype": None, "dtype": "float16"}
        assert Architecture.from_config(config).dtype == "float16"

    def test_quantisation_changes_no_parameter_count(self):
        plain = config_of("qwen2.5-7b-instruct-awq")
        quantised = Architecture.from_config(plain)
        del plain["quantization_config"]
        assert Architecture.from_config(plain).total_params == quantised.total_params

    def test_a_float32_checkpoint_is_served_in_16_bits(self):
        model = Architecture.from_config(CONFIGS / "gemma-2-9b.json")
        assert model.weight_bytes() == 36_966_823_936
        assert model.served_as("auto").weight_bytes() == model.weight_bytes("bfloat16")
        assert model.kv_bytes(512) == EXPECTED["gemma-2-9b"]["kv_cache_bytes_bf16_one_sequence"]["512"]
        assert model.mbu_weight_bytes(1) == model.weight_bytes("bfloat16")

    def test_served_in_another_dtype(self):
        model = Architecture.from_config(SMALL).served_as("float32")
        assert model.weight_bytes() == 4 * model.total_params
        assert model.kv_bytes(1) == 2 * Architecture.from_config(SMALL).kv_bytes(1)


class TestMalformed:
    @pytest.mark.parametrize("key", sorted(set(SMALL) - {"torch_dtype", "num_key_value_heads"}))
    def test_a_missing_key_is_named(self, key):
        config = {name: value for name, value in SMALL.items() if name != key}
        with pytest.raises(ArchitectureError, match=f"`{key}`.*missing"):
            Architecture.from_config(config)

    @pytest.mark.parametrize("key", sorted(set(SMALL) - {"torch_dtype", "model_type"}))
    @pytest.mark.parametrize(
        "value",
        [-1, 0, 1.5, True, "64", "x" * 10_000_000, [], {}, float("nan"), float("inf"), 10**30, -(10**5000)],
        ids=lambda value: str(type(value).__name__),
    )
    def test_a_value_of_another_kind_is_named(self, key, value):
        started = time.monotonic()
        with pytest.raises(ArchitectureError) as caught:
            Architecture.from_config({**SMALL, key: value})
        assert f"`{key}`" in str(caught.value)
        assert len(str(caught.value)) < 400
        assert time.monotonic() - started < 1

    @pytest.mark.parametrize("value", [1, "yes", [True]])
    def test_a_flag_must_be_a_flag(self, value):
        with pytest.raises(ArchitectureError, match="`tie_word_embeddings`"):
            Architecture.from_config({**SMALL, "tie_word_embeddings": value})

    @pytest.mark.parametrize("key", ["model_type", "torch_dtype"])
    @pytest.mark.parametrize("value", [7, ["llama"], "no-such-thing"])
    def test_a_name_must_be_a_known_name(self, key, value):
        with pytest.raises(ArchitectureError, match=f"`{key}`"):
            Architecture.from_config({**SMALL, key: value})

    def test_numbers_that_contradict_each_other(self):
        with pytest.raises(ArchitectureError, match=r"`num_key_value_heads`.*does not divide"):
            Architecture.from_config({**SMALL, "num_key_value_heads": 3})
        with pytest.raises(ArchitectureError, match=r"`hidden_size`.*no multiple"):
            Architecture.from_config({**SMALL, "hidden_size": 60})
        with pytest.raises(ArchitectureError, match=r"`num_experts_per_tok`.*more than"):
            Architecture.from_config(
                {**SMALL, "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3}
            )

    def test_absurd_numbers_take_no_time(self):
        started = time.monotonic()
        with pytest.raises(ArchitectureError, match="num_hidden_layers"):
            Architecture.from_config({**SMALL, "num_hidden_layers": 10**9})
        assert time.monotonic() - started < 1

    def test_layer_types(self):
        config = {**SMALL, "model_type": "qwen3", "use_sliding_window": True}
        for types in (["full_attention"], ["linear_attention"] * 3, "full_attention", [1, 2, 3]):
            with pytest.raises(ArchitectureError, match="`layer_types`"):
                Architecture.from_config({**config, "layer_types": types})

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"[]",
            b"7",
            b'"llama"',
            b"null",
            b"{",
            b"\xff\xfe\x00",
            b"[" * 200_000,
            b"1" * 10_000,
            b"junk" * 2_500_000,
        ],
        ids=["empty", "list", "number", "string", "null", "cut", "no text", "deep", "long number", "10 MB"],
    )
    def test_a_file_that_is_no_config_is_named(self, tmp_path, content):
        path = tmp_path / "config.json"
        path.write_bytes(content)
        started = time.monotonic()
        with pytest.raises(ArchitectureError) as caught:
            Architecture.from_config(tmp_path)
        assert str(path) in str(caught.value)
        assert time.monotonic() - started < 2

    def test_ten_megabytes_of_junk_beside_the_keys_do_no_harm(self, tmp_path):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**SMALL, "junk": "x" * 10_000_000}))
        assert Architecture.from_config(path) == Architecture.from_config(SMALL)

    def test_a_huge_file_is_not_read(self, tmp_path):
        path = tmp_path / "config.json"
        with path.open("wb") as file:
            file.truncate(10**10)
        with pytest.raises(ArchitectureError, match="bytes"):
            Architecture.from_config(path)

    @pytest.mark.parametrize("origin", ["no/such/folder", "a\0b", "x" * 5000, 7, None, [], b"{}"])
    def test_an_origin_that_is_none(self, origin):
        with pytest.raises(ArchitectureError):
            Architecture.from_config(origin)

    def test_the_file_is_named_with_the_key(self, tmp_path):
        path = tmp_path / "config.json"
        path.write_text(json.dumps({"model_type": "x", "text_config": {**SMALL, "vocab_size": "many"}}))
        with pytest.raises(ArchitectureError, match=r"`text_config\.vocab_size` in .*config\.json"):
            Architecture.from_config(path)

    @given(
        st.dictionaries(
            st.sampled_from([*SMALL, "quantization_config", "text_config", "head_dim", "sliding_window"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
                max_leaves=5,
            ),
        )
    )
    def test_whatever_a_config_holds_the_error_is_ours(self, changes):
        with contextlib.suppress(ArchitectureError):
            Architecture.from_config({**SMALL, **changes})

    @pytest.mark.parametrize("call", ["kv_bytes", "flops_per_token"])
    def test_a_negative_context_is_a_mistake(self, call):
        with pytest.raises(ValueError, match="context_len"):
            getattr(Architecture.from_config(SMALL), call)(-1)

    def test_an_unknown_dtype_is_named(self):
        with pytest.raises(ArchitectureError, match="'float99'"):
            Architecture.from_config(SMALL).weight_bytes("float99")


CONTEXTS = st.integers(1, 200_000)
BATCHES = st.integers(1, 4096)
MODELS = st.sampled_from([Architecture.from_config(CONFIGS / f"{name}.json") for name in NAMES])


class TestProperties:
    @given(MODELS, CONTEXTS, st.integers(0, 1000))
    def test_bytes_and_flops_never_fall_with_context(self, model, context, more):
        assert model.kv_bytes(context + more) >= model.kv_bytes(context)
        assert model.flops_per_token(context + more) >= model.flops_per_token(context)
        assert model.prefill_flops(context + more) >= model.prefill_flops(context)

    @given(MODELS, BATCHES, st.integers(0, 100), CONTEXTS)
    def test_bytes_never_fall_with_the_batch(self, model, batch, more, context):
        assert model.decode_read_bytes(batch + more, context) >= model.decode_read_bytes(batch, context)
        assert model.mbu_weight_bytes(batch) <= model.weight_bytes(model.compute_dtype)

    @given(MODELS, BATCHES)
    def test_a_batch_reads_between_the_active_and_all_weights(self, model, batch):
        assert model.decode_weight_bytes(1) <= model.decode_weight_bytes(batch) <= model.mbu_weight_bytes(1e12)

    @given(CONTEXTS)
    def test_a_full_sliding_window_keeps_what_it_has(self, more):
        model = Architecture.from_config(CONFIGS / "mistral-7b-v0.1.json")
        assert model.kv_bytes(4096 + more) == model.kv_bytes(4096)
        assert model.flops_per_token(4096 + more) == model.flops_per_token(4096)

    @given(MODELS, CONTEXTS, st.sampled_from([1, 2, 4, 8, 16, 32]))
    def test_tensor_parallel_ranks_sum_to_the_whole_or_more(self, model, context, ranks):
        whole = model.kv_bytes(context)
        spread = model.kv_bytes(context, tensor_parallel=ranks)
        assert spread % ranks == 0
        heads = model.decoder.layers[0].attention
        if heads.latent_dim is None and heads.kv_heads % ranks == 0:
            assert spread == whole
        else:
            assert spread >= whole or heads.kv_heads % ranks

    @given(MODELS, st.integers(1, 9000), st.integers(0, 60))
    def test_a_mean_is_the_mean(self, model, first, more):
        contexts = range(first, first + more + 1)
        kv = sum(model.kv_bytes(context) for context in contexts) / len(contexts)
        flops = sum(model.flops_per_token(context) for context in contexts) / len(contexts)
        assert model.mean_kv_bytes(first, first + more) == pytest.approx(kv)
        assert model.mean_flops_per_token(first, first + more) == pytest.approx(flops)

    @given(MODELS, st.integers(1, 60))
    def test_a_prefill_is_the_sum_of_its_tokens(self, model, prompt):
        head = 2 * model.decoder.head.weight_params
        tokens = sum(model.flops_per_token(context) for context in range(1, prompt + 1))
        assert model.prefill_flops(prompt) == tokens - (prompt - 1) * head

    @given(st.integers(1, 512), st.data())
    def test_experts_touched(self, experts, data):
        selected = data.draw(st.integers(1, experts))
        batch = data.draw(BATCHES)
        touched = expected_distinct_experts(experts, selected, batch)
        assert selected <= touched <= experts
        assert touched == pytest.approx(experts * (1 - (1 - selected / experts) ** batch))
        assert expected_distinct_experts(experts, selected, 1) == selected
