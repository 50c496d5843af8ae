"""At which clock does a board give the most tokens per joule, and what does that cost in latency?

Prefill (512 prompt tokens, one output token), decode (a prompt of one, 256 output tokens) and end to end (512 and
256), 16 requests at a time, at every clock of the grid: 750 to 1300 MHz in steps of 50, as far as the boards reach.
``test_free`` is the same load at the clock that the board chooses, which a lock has to be compared with.

Options: only sweeps; they lock the clock of every board in use (permission needed, or ``--llmperf-engine sim:v100``).
``--llmperf-launches`` says how often each point is measured; several make the interval of the optimum.

Found on a V100: the maximum is near 900 MHz for all three. Below it static power over a longer run loses, above it
the power of a higher voltage and clock.
"""

import pytest

from pytest_llmperf import Workload

pytestmark = [pytest.mark.sweep, pytest.mark.usefixtures("boards")]

SHAPES = pytest.mark.parametrize(
    ("input_len", "output_len"), [(512, 1), (1, 256), (512, 256)], ids=["prefill", "decode", "end-to-end"]
)


@SHAPES
def test_free(llmperf, input_len, output_len):
    llmperf.check(Workload(input_len, output_len, batch=16))


@SHAPES
@pytest.mark.usefixtures("boards", "gpu_clock")
def test_clock(llmperf, input_len, output_len):
    llmperf.check(Workload(input_len, output_len, batch=16))
