"""Which engine arguments a machine cannot meet, and in which words a test is skipped for it."""

import pytest

from pytest_llmperf.engines.spec import EngineChoice, specify
from pytest_llmperf.gpu import Board
from pytest_llmperf.plugin.requirements import unmet

GIB = 2**30


def boards(count, capability=(9, 0), gib=80):
    return [Board(n, "Some GPU", f"GPU-{n}", "1", 700, gib * GIB, compute_capability=capability) for n in range(count)]


def reason(args, *, platform="cuda", name="vllm", treatment=(), model="mistral-7b", on=1, **board):
    choice = EngineChoice(name, platform, dict(treatment), "")
    return unmet(specify(choice, model, args), boards(on, **board) if isinstance(on, int) else on)


@pytest.mark.parametrize("args", [
    {}, {"enforce_eager": True}, {"max_num_seqs": 256}, {"quantization": "fp8"}, {"kv_cache_dtype": "fp8"},
])  # fmt: skip
def test_what_a_new_board_can_do_is_left_to_the_engine(args):
    assert reason(args) is None


@pytest.mark.parametrize(
    ("on", "words"), [(0, "and none is visible"), (1, "and 1 is visible"), (2, "and 2 are visible")]
)
def test_too_few_gpus(on, words):
    assert reason({"tensor_parallel_size": 4}, on=on) == f"tensor_parallel_size=4 needs 4 GPUs, {words}"
    assert reason({"tensor_parallel_size": 4}, on=4) is None


def test_a_server_keeps_its_arguments():
    server = {"platform": "url", "name": "http://host:8000"}
    assert (
        reason({"max_num_seqs": 256}, **server) == "http://host:8000 runs already: max_num_seqs cannot be set from here"
    )
    assert reason({}, **server) is None


def test_an_argument_that_the_command_line_overrules():
    overruled = reason({"enforce_eager": True}, treatment={"enforce_eager": False})
    assert overruled == "--llmperf-engine says enforce_eager=False, and this test is about enforce_eager=True"
    assert reason({"enforce_eager": True}, treatment={"enforce_eager": True}) is None
    assert reason({}, treatment={"enforce_eager": True}) is None


@pytest.mark.parametrize("args", [{"tensor_parallel_size": 1}, {"quantization": "fp8"}, {"kv_cache_dtype": "fp8"}])
def test_what_is_about_gpus_is_not_for_the_cpu_build(args):
    assert reason(args, platform="cpu", on=0) == f"{next(iter(args))} is about GPUs, and this is vLLM's CPU build"


def test_the_cpu_build_can_be_eager():
    assert reason({"enforce_eager": True}, platform="cpu", on=0) is None


@pytest.mark.parametrize(
    ("args", "capability", "needs"),
    [
        ({"quantization": "fp8"}, (7, 0), "quantization=fp8 needs compute capability 7.5"),
        ({"kv_cache_dtype": "fp8"}, (7, 5), "kv_cache_dtype=fp8 needs compute capability 8.0"),
        ({"kv_cache_dtype": "fp8_e5m2"}, (7, 0), "kv_cache_dtype=fp8_e5m2 needs compute capability 8.0"),
    ],
)
def test_a_board_that_is_too_old(args, capability, needs):
    has = f"{capability[0]}.{capability[1]}"
    assert reason(args, capability=capability) == f"{needs}, and Some GPU has {has}"


def test_the_kernels_of_a_method_need_what_it_needs():
    args = {"quantization": "awq_marlin"}
    assert "needs compute capability 7.5" in reason(args, model="mistral-7b-awq", capability=(7, 0))
    assert reason(args, model="mistral-7b-awq") is None


def test_a_board_that_does_not_tell_its_capability_is_tried():
    assert reason({"quantization": "fp8"}, capability=None) is None


@pytest.mark.parametrize("platform", ["cuda", "sim"])
def test_a_format_that_only_a_checkpoint_brings(platform):
    why = reason({"quantization": "awq_marlin"}, platform=platform)
    assert why == "mistral-7b is no checkpoint that awq_marlin has quantised (name one with --llmperf-model)"


def test_a_format_made_of_real_weights():
    assert "mistral-7b is a bare shape" in reason({"quantization": "bitsandbytes"})
    assert "not simulated" in reason({"quantization": "bitsandbytes"}, platform="sim")


class TestMemory:
    @pytest.mark.parametrize(("gpus", "fits"), [(1, False), (2, True), (4, True)])
    def test_the_weights_are_divided_over_the_gpus(self, gpus, fits):
        why = reason({"tensor_parallel_size": gpus}, model="dense-34b", on=gpus, gib=48)
        assert (why is None) == fits

    def test_the_sentence_has_the_figures(self):
        why = reason({"tensor_parallel_size": 2}, model="llama-2-70b", on=2, gib=64)
        # 137,953,296,384 bytes over two, and the half of 4096 x 327,680 bytes.
        assert why == (
            "llama-2-70b needs 64.2 GiB of each GPU for its weights and 0.6 GiB for one sequence of 4096 tokens, and "
            "of Some GPU 57.6 GiB may be used"
        )

    def test_shorter_sequences_and_fewer_bits_need_less(self):
        # Of 27.9 GiB the weights take 24.2, and a sequence of 4096 tokens 3.1.
        assert reason({}, model="llama-2-13b", gib=31) is not None
        assert reason({"max_model_len": 1024}, model="llama-2-13b", gib=31) is None
        assert reason({"kv_cache_dtype": "fp8"}, model="llama-2-13b", gib=31) is None
        assert reason({"quantization": "fp8"}, model="llama-2-13b", gib=20) is None

    def test_the_share_that_the_command_line_gives(self):
        assert reason({}, model="llama-2-13b", gib=31, treatment={"gpu_memory_utilization": 0.98}) is None

    @pytest.mark.parametrize("model", ["org/name", "tiny-llama"])
    def test_what_is_not_known_or_small_is_tried(self, model):
        assert reason({}, model=model, gib=1000 if "/" in model else 16) is None


SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.usefixtures("llm_requirements")
@pytest.mark.llmperf(engine={"quantization": "fp8"})
def test_fp8(llmperf):
    llmperf.measure(Workload(8, 8))

def test_unasked(llmperf):
    llmperf.measure(Workload(8, 8))
"""


def test_a_test_that_asks_is_skipped_before_an_engine_starts(pytester):
    pytester.makepyfile(SUITE)
    base = ("-rs", "-p", "no:cacheprovider", "--llmperf-report=report")
    old = pytester.runpytest_inprocess(*base, "--llmperf-engine=sim:v100")
    old.assert_outcomes(passed=1, skipped=1)
    old.stdout.fnmatch_lines(
        ["SKIPPED*quantization=fp8 needs compute capability 7.5, and Tesla V100-SXM2-32GB has 7.0"]
    )
    pytester.runpytest_inprocess(*base, "--llmperf-engine=sim:h200").assert_outcomes(passed=2)
