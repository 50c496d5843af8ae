"""What do prefill and decode take, apart and together: how long, how much power, how much of the GPU?

Prefill is a long prompt and one output token, decode a prompt of one token and a long output, end to end both.
``test_token`` measures all of them in one launch, for what a prompt token and an output token cost in joules.

Options: none needed; no lock. ``--gpu-clock`` makes runs comparable with one another. ``-m sweep`` adds batches.

Found on an H200 (clock free, batch 16): a prompt token took 0.0166 J and an output token 0.160 J, 10 times as much,
and at batch 1 107 times; on a V100 about 50 times. Prefill draws the most power at full utilisation, decode
less and evenly.
"""

import pytest

from pytest_llmperf import Workload

PREFILL = Workload(input_len=512, output_len=1)
DECODE = Workload(input_len=1, output_len=256)
END_TO_END = Workload(input_len=512, output_len=256)


def batches(*usual, sweep):
    """A parameter: the usual batches, and those of the sweep."""
    series = [pytest.param(batch, marks=pytest.mark.sweep) for batch in sweep]
    return pytest.mark.parametrize("batch", [*usual, *series])


@batches(8, sweep=[1, 2, 4, 16, 32])
def test_prefill(llmperf, batch):
    llmperf.check(PREFILL.replace(batch=batch))


@batches(1, 16, sweep=[2, 4, 8, 32, 64, 128])
def test_decode(llmperf, batch):
    llmperf.check(DECODE.replace(batch=batch))


@batches(1, 16, sweep=[4, 64])
def test_end_to_end(llmperf, batch):
    llmperf.check(END_TO_END.replace(batch=batch))


@pytest.mark.usefixtures("boards")
@batches(16, sweep=[1, 4, 64])
def test_token(llmperf, batch):
    llmperf.check_phases(END_TO_END.replace(batch=batch))
