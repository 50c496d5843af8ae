"""The engine of a server of our own: the client's measurements, and the server's death at once."""

import asyncio

import psutil
import pytest

from pytest_llmperf.engines import Offer
from pytest_llmperf.engines.server import engine as module
from pytest_llmperf.engines.site import Site
from pytest_llmperf.engines.spec import EngineChoice, EngineSpec
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve
from tests.engines.openai.loads import carried, openai, plain, requests
from tests.engines.openai.player import Player, Reply

pytestmark = pytest.mark.timeout(60)


class Server:
    """Stands for the process: it is wherever the player is, and dies when it is told to."""

    url = ""

    def __init__(self, spec, log_path):
        self.spec = spec
        self.stops = 0
        self._died = asyncio.Event()

    async def start(self, **_):
        return self.url

    def died(self):
        return self._died

    def death(self):
        return EngineError("The server died.")

    def disturbances(self):
        return ["compiled"]

    async def stop(self):
        self.stops += 1


@pytest.fixture
def build(monkeypatch):
    def built(url, **treatment):
        monkeypatch.setattr(Server, "url", url)
        monkeypatch.setattr(module, "VllmServer", Server)
        monkeypatch.setattr(module, "complete_arguments", lambda spec: {**spec.args, **spec.choice.treatment})
        treatment = {"calibrate": False, "realtime": False, **treatment}
        return module.ServeEngine(
            EngineSpec(EngineChoice("serve", "cpu", treatment, ""), resolve("tiny-llama"), {"dtype": "float16"}),
            Site(connect_timeout=20, read_timeout=20),
            None,
        )

    return built


def test_it_measures_what_it_has_started(build):
    async def main():
        engine = build(player.url, enforce_eager=True, workers=1)
        try:
            info = await engine.open()
            await engine.open_account()
            traces = await carried(engine, 3, at_once=3)
            return engine, info, traces, await engine.close_account(), engine.disturbances()
        finally:
            await engine.close()

    with Player(openai()) as player:
        engine, info, traces, account, disturbances = asyncio.run(main())
    assert (info.kind, info.dtype, info.device_count) == ("serve", "float16", 1)
    # Settings of the client are not the server's arguments.
    assert engine._server.spec.choice.treatment == {"enforce_eager": True}
    assert {"enforce_eager", "dtype", "request"} == set(info.args)
    assert info.treatment["workers"] == 1
    assert all(trace.completed for trace in traces)
    assert account.client.requests == 3
    assert disturbances == ["compiled"]
    assert engine._server.stops == 1
    assert psutil.Process().children() == []


PAGE = 'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="500"} 1.0\n'


@pytest.mark.parametrize(
    ("page", "cache"), [("", {"block_size": 8}), (PAGE, {"block_size": 16, "num_gpu_blocks": 500})]
)
def test_its_limits_are_what_it_was_given_and_what_its_page_tells(build, page, cache):
    async def main():
        engine = build(
            player.url, max_num_seqs=32, max_num_batched_tokens=None, block_size=8, enable_prefix_caching=True
        )
        try:
            return await engine.open()
        finally:
            await engine.close()

    with Player(openai(**{"/metrics": lambda _: plain(page.encode(), kind="text/plain")})) as player:
        info = asyncio.run(main())
    assert info.limits == {"max_num_seqs": 32, **cache}


@pytest.mark.parametrize("during", ["open", "carry"])
def test_the_servers_death_ends_everything_at_once(build, during):
    def hang(_):
        return Reply((), "hang")

    async def main():
        engine = build(player.url)
        asked = requests(2)
        try:
            if during == "carry":
                player._answer = openai()
                await engine.open()
                await engine.prepare(asked, 2)
                player._answer = openai(hang)
            seen = len(player.asked)
            work = engine.carry(Offer(asked)) if during == "carry" else engine.open()
            task = asyncio.ensure_future(work)
            await asyncio.to_thread(player.wait, lambda p: any(a.path == "/v1/completions" for a in p.asked[seen:]))
            engine._server.died().set()
            with pytest.raises(EngineError, match="The server died"):
                await task
        finally:
            await engine.close()
            await engine.close()

    with Player(openai(hang)) as player:
        asyncio.run(main())
    assert psutil.Process().children() == []
