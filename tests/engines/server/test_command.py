"""Engine arguments as flags of vLLM's server."""

import sys
from pathlib import Path

import pytest

from pytest_llmperf.engines.server import environment
from pytest_llmperf.engines.server.command import command
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec
from pytest_llmperf.errors import OptionError
from pytest_llmperf.models import Model, resolve

NAMES = {
    "model", "load_format", "skip_tokenizer_init", "enable_prefix_caching", "disable_log_stats", "enforce_eager",
    "gpu_memory_utilization", "max_model_len", "compilation_config", "cudagraph_capture_sizes", "dtype", "tokenizer",
    "speculative_config", "served_model_name", "lora_target_modules",
}  # fmt: skip
REAL = Model("org/name", "org/name", config=None, has_weights=True, has_tokenizer=True)


@pytest.fixture(autouse=True)
def names(monkeypatch):
    monkeypatch.setattr(sys.modules[command.__module__], "argument_names", lambda: NAMES)


def spec(model="tiny-llama", platform="cpu", args=None, **treatment):
    found = model if isinstance(model, Model) else resolve(model)
    return EngineSpec(EngineChoice("serve", platform, treatment, ""), found, args or {})


def words(**treatment):
    return command(spec(**treatment), 1)


def test_a_shape_is_served_with_dummy_weights_and_without_a_tokenizer():
    found = command(spec(), 1234)
    assert found[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert found[3:7] == ["--host", "127.0.0.1", "--port", "1234"]
    assert found[7:9] == ["--model", resolve("tiny-llama").location]
    assert set(found[9:]) == {
        "--disable-uvicorn-access-log", "--load-format=dummy", "--skip-tokenizer-init", "--no-enable-prefix-caching",
        "--gpu-memory-utilization=0.3",
    }  # fmt: skip


def test_a_model_with_weights_on_a_gpu_gets_neither():
    assert command(spec(REAL, "cuda"), 1)[9:] == ["--disable-uvicorn-access-log", "--no-enable-prefix-caching"]


def test_the_treatment_wins_over_the_marker_and_that_over_our_defaults():
    args = {"enable_prefix_caching": True, "max_model_len": 64}
    found = command(spec(args=args, max_model_len=128), 1)
    assert "--enable-prefix-caching" in found
    assert "--no-enable-prefix-caching" not in found
    assert "--max-model-len=128" in found
    assert "--max-model-len=64" not in found


class dtype:  # noqa: N801 - as PyTorch calls it
    def __str__(self):
        return "torch.bfloat16"


@pytest.mark.parametrize(
    ("name", "value", "flags"),
    [
        ("enforce_eager", True, ["--enforce-eager"]),
        ("enforce_eager", False, ["--no-enforce-eager"]),
        ("enforce_eager", None, []),
        ("disable_log_stats", True, ["--disable-log-stats"]),
        ("disable_log_stats", False, []),
        ("max_model_len", 64, ["--max-model-len=64"]),
        ("max_model_len", -1, ["--max-model-len=-1"]),
        ("dtype", "-odd value", ["--dtype=-odd value"]),
        ("dtype", dtype(), ["--dtype=bfloat16"]),
        ("tokenizer", Path("/a b"), ["--tokenizer=/a b"]),
        ("gpu_memory_utilization", 0.5, ["--gpu-memory-utilization=0.5"]),
        ("gpu_memory_utilization", None, []),
        ("compilation_config", {"mode": 3, "x": [1, None]}, ['--compilation-config={"mode": 3, "x": [1, null]}']),
        ("compilation_config", {}, ["--compilation-config={}"]),
        ("cudagraph_capture_sizes", [1, 2], ["--cudagraph-capture-sizes", "1", "2"]),
        ("cudagraph_capture_sizes", (1, 2), ["--cudagraph-capture-sizes", "1", "2"]),
        ("lora_target_modules", {"b", "a"}, ["--lora-target-modules", "a", "b"]),
        ("served_model_name", ["a", {"b": 1}], ["--served-model-name", "a", '{"b": 1}']),
    ],
)
def test_a_value_becomes_what_the_command_line_of_vllm_calls_it(name, value, flags):
    ours = [word for word in command(spec(), 7) if not word.startswith(f"--{name.replace('_', '-')}=")]
    found = command(spec(args={name: value}), 7)
    assert sorted(found) == sorted([*ours, *flags])
    assert "\n".join(flags) in "\n".join(found)


@pytest.mark.parametrize("value", [[], (), object(), [object()]])
def test_a_value_that_no_flag_can_say_is_refused(value):
    with pytest.raises(OptionError, match="cudagraph_capture_sizes"):
        words(cudagraph_capture_sizes=value)


def test_an_unknown_argument_is_refused_with_the_one_that_was_meant():
    with pytest.raises(OptionError, match=r"'max_modl_len'.*Did you mean 'max_model_len'"):
        words(max_modl_len=64)


class TestEnvironment:
    @pytest.fixture(autouse=True)
    def bare(self, monkeypatch):
        for name in ("HF_HUB_OFFLINE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_NO_USAGE_STATS", "VLLM_HTTP_TIMEOUT_KEEP_ALIVE"):
            monkeypatch.delenv(name, raising=False)

    def test_it_tells_no_one_and_keeps_connections(self):
        found = environment(spec())
        assert found["VLLM_NO_USAGE_STATS"] == "1"
        assert found["VLLM_CPU_KVCACHE_SPACE"] == "2"
        assert int(found["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 600
        assert "PATH" in found

    def test_what_the_user_has_set_stays(self, monkeypatch):
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "7")
        monkeypatch.setenv("HF_HUB_OFFLINE", "0")
        found = environment(spec())
        assert (found["VLLM_CPU_KVCACHE_SPACE"], found["HF_HUB_OFFLINE"]) == ("7", "0")

    def test_a_gpu_needs_no_space_for_the_cache_of_the_cpu(self):
        assert "VLLM_CPU_KVCACHE_SPACE" not in environment(spec(platform="cuda"))

    @pytest.mark.parametrize(
        ("model", "arguments", "offline"),
        [
            ("tiny-llama", {}, True),
            ("tiny-llama", {"tokenizer": str(Path(__file__).parent)}, True),
            ("tiny-llama", {"tokenizer": "org/name"}, False),
            ("tiny-llama", {"speculative_config": {"model": "org/draft"}}, False),
            (REAL, {}, False),
        ],
    )
    def test_the_hub_is_left_alone_only_where_nothing_can_come_from_it(self, model, arguments, offline):
        assert ("HF_HUB_OFFLINE" in environment(spec(model, **arguments))) == offline
