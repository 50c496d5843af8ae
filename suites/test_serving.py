"""How does it serve requests that arrive by themselves, and how many a second within the limits?

The load is an open loop: requests arrive at random (Poisson), whatever the server does, and latency counts from when
each was due. Limits on TTFT and TPOT (the service-level objectives) make the goodput: the requests per second that
kept both. ``test_highest_rate`` searches the highest rate that keeps them for 90 % of the requests.

Options: ``--llmperf-engine serve``, or a server's URL, has the server in it; in process it is left out. No lock. ``-m
sweep`` adds rates and burstier arrivals.

Found on an H200 over HTTP: with requests of 512 and 256 tokens it kept up with 28 a second (9.3 ms per output token)
and not with 36, of which 29.8 a second ended.
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
    llmperf.check(SERVING.replace(rate=rate, requests=min(30 * rate, 480)))


@pytest.mark.sweep
@pytest.mark.parametrize("arrival", ["constant", "poisson", "gamma:0.25"])
def test_burstiness(llmperf, arrival):
    llmperf.check(SERVING.replace(rate=8, requests=240, arrival=arrival))
