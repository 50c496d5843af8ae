"""What does a token cost in joules: one of the prompt, one of the output? And at which clock does it cost least?

Energy compares on the same board only: a baseline keeps it by the board's UUID.
"""

import pytest

from pytest_llmperf import Workload

WORKLOAD = Workload(input_len=512, output_len=256)
SHAPES = {"prefill": (512, 1), "decode": (1, 256), "end-to-end": (512, 256)}


@pytest.fixture(autouse=True)
def _boards(gpus):
    if not gpus:
        pytest.skip("there is no GPU whose energy could be read")


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
def test_token(llmperf, batch):
    llmperf.check_phases(WORKLOAD.replace(batch=batch))


@pytest.mark.sweep
@pytest.mark.usefixtures("gpu_clock")
@pytest.mark.parametrize("gpu_clock", range(750, 1301, 50), indirect=True)
@pytest.mark.parametrize("shape", SHAPES)
def test_clock(llmperf, shape):
    input_len, output_len = SHAPES[shape]
    llmperf.check(WORKLOAD.replace(input_len=input_len, output_len=output_len, batch=16))
