"""How long do prefill and decode take, apart and together?

Prefill: a long prompt and one output token. Decode: a prompt of one token and a long output. End to end: both.
"""

import pytest

from pytest_llmperf import Workload

PREFILL = Workload(input_len=512, output_len=1)
DECODE = Workload(input_len=1, output_len=256)
END_TO_END = Workload(input_len=512, output_len=256)


@pytest.mark.parametrize("batch", [1, 8])
def test_prefill(llmperf, batch):
    llmperf.check(PREFILL.replace(batch=batch))


@pytest.mark.parametrize("batch", [1, 4, 16])
def test_decode(llmperf, batch):
    llmperf.check(DECODE.replace(batch=batch))


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
def test_end_to_end(llmperf, batch):
    llmperf.check(END_TO_END.replace(batch=batch))


@pytest.mark.sweep
@pytest.mark.parametrize("input_len", [128, 512, 2048])
@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32])
def test_prefill_sweep(llmperf, batch, input_len):
    llmperf.check(PREFILL.replace(input_len=input_len, batch=batch))


@pytest.mark.sweep
@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64, 128])
def test_decode_sweep(llmperf, batch):
    llmperf.check(DECODE.replace(batch=batch))
