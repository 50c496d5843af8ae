"""How does it serve requests that arrive by themselves, and how many a second within the limits?

The load is an open loop: requests arrive at random (Poisson), whatever the server does, and latency counts from when
each was due. Limits on TTFT and TPOT (the service-level objectives) make the goodput: the requests per second that kept
both. Run it over HTTP (``--llmperf-engine serve``, or a server's URL) to have the server in it, or in process to leave
it out.
"""

import pytest

from pytest_llmperf import Workload

SLO = {"ttft": 0.5, "tpot": 0.05}
SERVING = Workload(
    input_len={"uniform": [64, 512]},
    output_len={"uniform": [32, 128]},
    rate=2,
    requests=20,
    slo=SLO,
)


@pytest.mark.llmperf(tolerance={"goodput": "10%"})
def test_open_loop(llmperf):
    llmperf.check(SERVING)


@pytest.mark.llmperf(tolerance={"max_rate": "10%"})
def test_highest_rate(llmperf):
    llmperf.check_max_rate(SERVING, low=2, high=256, precision=0.1)


@pytest.mark.sweep
@pytest.mark.llmperf(tolerance={"goodput": "10%"})
@pytest.mark.parametrize("rate", [1, 2, 4, 8, 16, 32, 64])
def test_open_loop_sweep(llmperf, rate):
    llmperf.check(SERVING.replace(rate=rate, requests=30 * rate))


@pytest.mark.sweep
@pytest.mark.parametrize("arrival", ["constant", "poisson", "gamma:0.25"])
def test_burstiness(llmperf, arrival):
    llmperf.check(SERVING.replace(rate=8, requests=240, arrival=arrival))


@pytest.mark.sweep
@pytest.mark.parametrize("concurrency", [1, 4, 16, 64])
def test_closed_loop(llmperf, concurrency):
    llmperf.check(SERVING.replace(concurrency=concurrency, requests=8 * concurrency))
