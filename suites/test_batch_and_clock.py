"""What do batch size and clock do to power, tokens per joule, throughput and latency?

Requests of 512 prompt and 256 output tokens, batches of 1 to 64, each over the grid of clocks and once at a free
clock.

Options: the sweep locks the clock of every board in use (permission needed, or ``--llmperf-engine sim:v100``); ``-k
"16 or 64"`` thins it.

Found on a V100: up to batch 16 power hardly changes, for the weights' traffic dominates; over the clock it rises more
than linearly; a larger batch gives more tokens per joule; both raise throughput until the memory wall, and the larger
batch raises latency steeply. On an H200, clock free: 506 W and 0.43 tokens/J at batch 1, 691 W and 9.8 at 64.
"""

import pytest

from pytest_llmperf import Workload

REQUESTS = Workload(input_len=512, output_len=256)
BATCHES = [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("batch", [*(pytest.param(batch, marks=pytest.mark.sweep) for batch in BATCHES[:-1]), 64])
def test_batch(llmperf, batch):
    llmperf.check(REQUESTS.replace(batch=batch))


@pytest.mark.sweep
@pytest.mark.usefixtures("boards", "gpu_clock")
@pytest.mark.parametrize("batch", BATCHES)
def test_at_clock(llmperf, batch):
    llmperf.check(REQUESTS.replace(batch=batch))
