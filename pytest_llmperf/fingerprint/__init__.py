"""What an engine answers to fixed prompts, and how far two sets of such answers agree.

A faster engine that answers differently has not won. Greedy answers with the log-probability of each token are a
fingerprint of all that lies between a prompt and its answer: weights, precision, kernels. Two of them are compared
here; the engines take them, and the plugin decides.
"""

from __future__ import annotations

from pytest_llmperf.fingerprint.agreement import TIE, Agreement, Divergence, compare
from pytest_llmperf.fingerprint.answers import Answer, Outputs, Unavailable
from pytest_llmperf.fingerprint.definitions import DEFINITIONS, LOGPROB_DIFFERENCE, TOKEN_AGREEMENT
from pytest_llmperf.fingerprint.prompts import OUTPUT_LEN, fixed_prompts

__all__ = [
    "DEFINITIONS",
    "LOGPROB_DIFFERENCE",
    "OUTPUT_LEN",
    "TIE",
    "TOKEN_AGREEMENT",
    "Agreement",
    "Answer",
    "Divergence",
    "Outputs",
    "Unavailable",
    "compare",
    "fixed_prompts",
]
