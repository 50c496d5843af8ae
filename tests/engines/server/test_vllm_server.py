"""vLLM's real server on its CPU build: up, a streamed answer, the death of its engine, and nothing left behind."""

import asyncio
import json
import urllib.request
from dataclasses import fields
from importlib.util import find_spec

import psutil
import pytest

from pytest_llmperf.engines.openai.server_metrics import kv_cache
from pytest_llmperf.engines.server import VllmServer
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec
from pytest_llmperf.engines.vllm_arguments import argument_names
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: pip install 'pytest-llmperf[cpu]'"),
    pytest.mark.timeout(600),
]

#: Seconds until a start is given up; one takes 15 to 60.
START = 300


def server(tmp_path, **treatment):
    choice = EngineChoice("serve", "cpu", {"enforce_eager": True, **treatment}, "")
    return VllmServer(EngineSpec(choice, resolve("tiny-llama"), {}), str(tmp_path / "server.log"))


def get(url):
    with urllib.request.urlopen(url) as answer:
        return answer.read().decode()


def stream(url, model, tokens):
    body = {
        "model": model, "prompt": [5, 6, 7, 8], "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
        "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True,
    }  # fmt: skip
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        *events, done = [line[6:] for line in answer.read().decode().split("\n\n") if line]
    assert done == "[DONE]"
    return [json.loads(event) for event in events]


def test_it_serves_token_ids_tells_of_its_death_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    before = set(psutil.Process().children(recursive=True))

    async def main():
        served = server(tmp_path)
        try:
            url = await served.start(timeout=START)
            assert get(f"{url}/health") == ""
            assert json.loads(get(f"{url}/version"))["version"]
            (card,) = json.loads(get(f"{url}/v1/models"))["data"]
            assert card["max_model_len"] == 4096
            *chunks, last = await asyncio.to_thread(stream, url, card["id"], 6)
            # Without a tokenizer there is no text; the token ids are all that tells a token.
            assert sum(len(chunk["choices"][0]["token_ids"]) for chunk in chunks) == 6
            assert {chunk["choices"][0]["text"] for chunk in chunks} == {""}
            assert last["usage"] == {"prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10}
            assert "vllm:time_to_first_token_seconds_bucket" in get(f"{url}/metrics")
            cache = kv_cache(get(f"{url}/metrics"))
            assert (
                f"cache size: {cache['num_gpu_blocks'] * cache['block_size']:,} tokens"
                in (tmp_path / "server.log").read_text()
            )
            assert "POST /v1/completions" not in (tmp_path / "server.log").read_text()

            family = [p for p in psutil.Process().children(recursive=True) if p not in before]
            (core,) = [p for p in family if p.name().startswith("VLLM::Engine")]
            assert not served.died().is_set()
            core.kill()
            async with asyncio.timeout(60):
                await served.died().wait()
            # vLLM takes leave in good order when its engine is gone.
            assert "ended with exit status 0" in served.death().problem
            assert "without an error message (killed?)" in served.death().problem
        finally:
            await served.stop()
        return family

    family = asyncio.run(main())
    assert len(family) >= 3
    assert not any(p.is_running() for p in family)
    assert set(psutil.Process().children(recursive=True)) <= before


def test_a_start_that_fails_gives_vllms_root_cause(tmp_path):
    async def main():
        served = server(tmp_path, max_model_len=99999)
        try:
            await served.start(timeout=START)
        finally:
            await served.stop()

    with pytest.raises(EngineError, match=r"max_model_len \(99999\) is greater.*Lower max_model_len"):
        asyncio.run(main())


def test_the_arguments_read_from_its_source_are_those_that_it_takes():
    from vllm.engine.arg_utils import AsyncEngineArgs

    assert argument_names() == {field.name for field in fields(AsyncEngineArgs)}
