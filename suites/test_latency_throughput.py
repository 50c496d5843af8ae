"""How much throughput does an engine give, at which latency, and where does more load stop paying?

Two curves. *Concurrency*: so many requests of 256 prompt and 128 output tokens in flight at any time, as a busy
service has them. *Static batch*: so many sequences that only decode, which shows the batch at which decoding turns
from bound by memory to bound by compute; it is to be compared with the machine balance, peak FLOP/s over bandwidth.

Options: none needed; no lock. An engine runs no more sequences at once than its ``max_num_seqs``: beyond it
concurrency queues, which belongs to the answer; the static batches set it to 256, and so cannot run on a server by
URL.

Found on a V100: throughput rises with the batch until batch 173, which is 125 TFLOP/s over the 722 GB/s that a copy
reaches. On an H200 decode turns at batch 168 (143 to 196), where 234 is predicted, for a sequence costs more than its
FLOPs; batch 160 has 103 times the throughput of batch 1 at 1.5 times its latency.
"""

import pytest

from pytest_llmperf import Workload

LOADS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
SERVICE = Workload(input_len=256, output_len=128, concurrency=1)
DECODE = Workload(input_len=1, output_len=128)


@pytest.mark.parametrize(
    "concurrency", [pytest.param(load, marks=[] if load == 16 else pytest.mark.sweep) for load in LOADS]
)
def test_concurrency(llmperf, concurrency):
    llmperf.check(SERVICE.replace(concurrency=concurrency, requests=4 * concurrency))


@pytest.mark.sweep
@pytest.mark.usefixtures("llm_requirements")
@pytest.mark.llmperf(engine={"max_num_seqs": 256})
@pytest.mark.parametrize("batch", [*LOADS[:-1], 160, 192, 224, 256])
def test_static_batch(llmperf, batch):
    llmperf.check(DECODE.replace(batch=batch))
