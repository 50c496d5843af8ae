"""What does a prompt token cost in time beside an output token, and how near does prefill come to the compute roof?

Single requests over a grid of prompt and output lengths, for the prompt's share of the latency; and prompts with one
output token, whose FLOPs over their time are to be held against the board's peak.

Options: only sweeps; no lock. Lengths beyond the model's context are skipped.

Published: 512 more prompt tokens cost less time than 8 more output tokens. Found on an H200: 10 ms against 37; prefill
reaches 18 % of the peak FLOP/s with 128 prompt tokens, 61 % from 2048 on.
"""

import pytest

from pytest_llmperf import Workload

pytestmark = pytest.mark.sweep

PROMPTS = [128, 256, 512, 1024, 2048, 4096]
OUTPUTS = [8, 16, 32, 64, 128, 256]


@pytest.fixture
def request_of(llm_model):
    """Makes a workload, or skips the test where the model's context does not hold it."""

    def make(input_len, output_len):
        workload = Workload(input_len, output_len)
        holds = (llm_model.config or {}).get("max_position_embeddings")
        if holds is not None and workload.longest > holds:
            pytest.skip(f"the context of {llm_model.name} holds {holds} tokens, not {workload.longest}")
        return workload

    return make


@pytest.mark.parametrize("output_len", OUTPUTS)
@pytest.mark.parametrize("input_len", PROMPTS)
def test_request(llmperf, request_of, input_len, output_len):
    llmperf.check(request_of(input_len, output_len))


@pytest.mark.parametrize("input_len", PROMPTS)
def test_prompt(llmperf, request_of, input_len):
    llmperf.check(request_of(input_len, 1))
