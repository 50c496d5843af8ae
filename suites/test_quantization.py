"""What do fewer bits bring in speed, energy and memory, and do they change the answers? And what does compiling bring?

Weights as the checkpoint has them, in 8 bits (``fp8``, converted on loading) and in 4 (``awq``: the shape
mistral-7b-awq, comparable with mistral-7b; ``bitsandbytes``, which converts on loading and wants real weights); the
KV cache in 8 bits; and the engine eager, without compiling and CUDA graphs. How many sequences fit stands in the
record, under ``limits``: ``num_gpu_blocks`` times ``block_size``.

With real weights each format's greedy answers are held against those of the weights as they are: a faster engine that
answers differently has not won. Dummy weights answer nothing, and that guard is silent.

Options: only sweeps; no lock. ``--llmperf-model`` names a model with real weights. A format that the GPU is too old
for is skipped, and all of them on vLLM's CPU build.

Published: 8-bit weights halve the GPUs needed where memory bounds, at a risk for quality that has to be checked. Found
on an H200 (Mistral-7B's shape): FP8 weights take 29 % off TPOT and 42 % off the energy at batch 1, 26 and 34 % at 64;
4-bit ones 18 % off TPOT at batch 1 and nothing at 64; an FP8 KV cache holds twice the tokens and moves TPOT by less
than 5 %; an eager engine takes 3 to 6 times as long a token.
"""

import pytest

from pytest_llmperf import Workload
from pytest_llmperf.fingerprint import Outputs, compare

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("llm_requirements")]

REQUESTS = Workload(input_len=512, output_len=256)
FORMATS = {
    "as-stored": {},
    "fp8": {"quantization": "fp8"},
    "awq": {"quantization": "awq_marlin"},
    "bitsandbytes": {"quantization": "bitsandbytes"},
    "kv-fp8": {"kv_cache_dtype": "fp8"},
    "fp8-and-kv-fp8": {"quantization": "fp8", "kv_cache_dtype": "fp8"},
    "eager": {"enforce_eager": True},
}
#: Formats that are a checkpoint's own: its shape, and the model that it is another form of.
CHECKPOINTS = {"awq": ("mistral-7b-awq", "mistral-7b")}
#: The least share of tokens that have to agree with the answers of the weights as they are.
AGREEMENT = 0.9


@pytest.fixture(scope="module")
def as_stored():
    """The answers of the weights as they are, from the first test that has any."""
    return []


@pytest.fixture
def _comparable(form, pytestconfig):
    """Skips a checkpoint's format where the session's model is none that it is another form of."""
    model = pytestconfig.getoption("--llmperf-model") or pytestconfig.getini("llmperf_model")
    if form in CHECKPOINTS and model not in (None, "", CHECKPOINTS[form][1]):
        pytest.skip(f"{CHECKPOINTS[form][0]} compares with {CHECKPOINTS[form][1]}, not with {model}")


def marked(form):
    """A parameter whose engine has a format."""
    checkpoint = {"model": CHECKPOINTS[form][0]} if form in CHECKPOINTS else {}
    return pytest.param(form, marks=pytest.mark.llmperf(engine=FORMATS[form], **checkpoint))


@pytest.mark.usefixtures("_comparable")
@pytest.mark.parametrize("batch", [1, 16, 64])
@pytest.mark.parametrize("form", [marked(form) for form in FORMATS])
def test_format(llmperf, as_stored, form, batch):
    run = llmperf.check(REQUESTS.replace(batch=batch))
    answers = run.measurement.outputs
    if not isinstance(answers, Outputs):
        return
    if form == "as-stored":
        as_stored[:] = [answers]
    elif as_stored:
        agreement = compare(as_stored[0], answers).token_agreement
        assert agreement is None or agreement >= AGREEMENT, f"{form} answers differently"
