"""Engines that would make their weights up are not asked what they answer; nothing is started to find out."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from pytest_llmperf.engines.spec import EngineChoice, build, specify
from pytest_llmperf.engines.vllm_arguments import complete_arguments, has_dummy_weights
from pytest_llmperf.fingerprint import Unavailable

DUMMY = Unavailable("the weights are dummies")


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (tmp_path / "model.safetensors").touch()
    return str(tmp_path)


@pytest.mark.parametrize("name", ["vllm", "serve"])
@pytest.mark.parametrize("how", ["a bare shape", "the treatment", "the marker"])
def test_however_they_came_about(name, how, weights):
    dummy = {"load_format": "dummy"}
    choice = EngineChoice(name, "cpu", dummy if how == "the treatment" else {}, "")
    model = "tiny-llama" if how == "a bare shape" else weights
    engine = build(specify(choice, model, dummy if how == "the marker" else {}))

    async def main():
        try:
            return await engine.outputs(((1, 2),), 4)
        finally:
            await engine.close()

    assert asyncio.run(main()) == DUMMY


@pytest.mark.parametrize("given", ["dummy", "DUMMY", SimpleNamespace(value="dummy")])
def test_all_spellings(given):
    assert has_dummy_weights({"load_format": given})


def test_real_weights_are_none(weights):
    assert not has_dummy_weights(complete_arguments(specify(EngineChoice("vllm", "cpu", {}, ""), weights, {})))
    assert not has_dummy_weights({"load_format": "auto"})


def test_a_treatment_goes_over_the_marker(weights):
    spec = specify(EngineChoice("vllm", "cpu", {"load_format": "auto"}, ""), weights, {"load_format": "dummy"})
    assert not has_dummy_weights(complete_arguments(spec))
