"""Which way of batching serves better: static, dynamic or continuous, and in which regime?

The same requests at the same times (Poisson arrivals, prompts of 64 to 512 tokens, outputs of 1 to 512 with a median
of 64), at rates from nearly idle to overload. *Static* waits until 8 requests are there, and for the whole batch to
end before the next. *Dynamic* waits for 8 requests or 0.1 s. *Continuous* sends each when it is due, and the engine's
own scheduler takes it into the running batch. Which rate is a low one depends on the machine: look at the queue.

Options: only sweeps; no lock.

Published: continuous batching has 10 to 20 times the throughput of dynamic batching on shared services; dynamic can
win at low load; static is fine for work that is offline. Found on an H200: at 4 requests/s all three keep up, static
taking 5.5 times the latency of continuous; at 16 continuous has 2.5 times the throughput of both.
"""

import pytest

from pytest_llmperf import Workload

pytestmark = pytest.mark.sweep

MIXED = Workload(
    input_len={"uniform": [64, 512]},
    output_len={"lognormal": [64, 1.0, 1, 512]},
    rate=1,
)
POLICIES = {
    "static": {"policy": "static", "max_batch": 8},
    "dynamic": {"policy": "dynamic", "max_batch": 8, "max_wait": 0.1},
    "continuous": {"policy": "continuous"},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("rate", [0.25, 1, 4, 16, 64])
def test_policy(llmperf, rate, policy):
    llmperf.check(MIXED.replace(rate=rate, requests=min(int(16 + 16 * rate), 256), **POLICIES[policy]))
