"""Simulated engines, and offers carried out on them."""

from __future__ import annotations

import asyncio

from pytest_llmperf.engines import Offer, Request
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import EngineChoice, specify
from tests.simulation.round_numbers import round_board


def simulated(name="sim:h200", model="mistral-7b", launch=0, args=None, board=None, gpu=None, **treatment):
    """An engine on a board with round numbers, unless another board is given as ``gpu``."""
    spec = specify(EngineChoice(name, "sim", treatment, ""), model, args or {})
    return SimulatedEngine(spec, launch, board, model=gpu or round_board(name.removeprefix("sim:")))


def requests(*lengths, repeat_id="0"):
    """Requests of these (input, output) lengths, whose prompts differ from their first token on."""
    return tuple(
        Request(f"{repeat_id}/{i}", (1000 + i,) * n_in, n_out, repeat_id) for i, (n_in, n_out) in enumerate(lengths)
    )


def carry(engine, *offers):
    """Carry out offers one after the other; the traces of each."""

    async def work():
        await engine.open()
        traces = [await engine.carry(offer) for offer in offers]
        await engine.close()
        return traces

    with engine.clock.runner() as runner:
        return runner.run(work())


def at_once(engine, *lengths, **kwargs):
    """The traces of requests submitted together."""
    return carry(engine, Offer(requests(*lengths, **kwargs)))[0]


async def ask(engine, request, at_ns=0):
    """When a request's chunks come, if it is asked for at a time."""
    await engine.clock.sleep_until(at_ns)
    return [chunk.received_ns async for chunk in engine.generate(request)]


def ask_all(engine, work):
    async def whole():
        await engine.open()
        try:
            return await asyncio.wait_for(work(engine), None)
        finally:
            await engine.close()

    with engine.clock.runner() as runner:
        return runner.run(whole())
