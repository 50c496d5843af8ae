"""What do more GPUs bring, and what does a larger model cost?

*GPUs*: one model with each layer split over 1, 2, 4 and 8 of them (``tensor_parallel_size``), at batch 1 to 64.
*Model size*: shapes of 7, 13, 34 and 70 billion parameters over the same number of GPUs, so that size is all that
differs; compare rows of one number of GPUs only.

Options: only sweeps; no lock. ``--llmperf-model`` names the model of the first series. Skipped is what needs more
GPUs, or more memory, than there is; a simulated machine has up to 8 boards.

Published: MPT-7B from 2 to 4 GPUs: 12 % less time per token at batch 1, 33 % at batch 16. MPT-30B has 2.5 times the
latency of MPT-7B, Llama-2-70B twice that of Llama-2-13B: less than their sizes. Found on two H200 (NVLink):
27 % less time per token than on one at batch 1, 31 % at 64, for 20 to 23 % more energy, and twice the time to a first
token at batch 1; Llama-2-70B has 4.0 times the TPOT of Llama-2-13B, for 5.3 times its size.
"""

import pytest

from pytest_llmperf import Workload

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("llm_requirements")]

REQUESTS = Workload(input_len=512, output_len=256)
SIZES = ["llama-2-7b", "llama-2-13b", "dense-34b", "llama-2-70b"]
#: Room for more than the requests need would be memory that a model does not get.
MAX_MODEL_LEN = 2048


def split(size):
    """A parameter that is an engine argument of its test."""
    return pytest.param(size, marks=pytest.mark.llmperf(engine={"tensor_parallel_size": size}))


OVER = pytest.mark.parametrize("tensor_parallel_size", [split(1), split(2), split(4), split(8)])


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
@OVER
def test_tensor_parallel(llmperf, tensor_parallel_size, batch):
    llmperf.check(REQUESTS.replace(batch=batch))


@pytest.mark.llmperf(engine={"max_model_len": MAX_MODEL_LEN})
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("model", [pytest.param(size, marks=pytest.mark.llmperf(model=size)) for size in SIZES])
@OVER
def test_model_size(llmperf, tensor_parallel_size, model, batch):
    llmperf.check(REQUESTS.replace(batch=batch))
