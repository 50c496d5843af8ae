"""The fixtures of the plugin, each usable alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_llmperf.errors import OptionError
from pytest_llmperf.plugin.keys import BOARDS, SESSION, STATE

if TYPE_CHECKING:
    from pytest_llmperf.engines.pool import RunningEngine
    from pytest_llmperf.gpu import Board
    from pytest_llmperf.gpu.energy.block import PowerWindow, SharedWatch
    from pytest_llmperf.models import Model
    from pytest_llmperf.plugin.checking import Llmperf
    from pytest_llmperf.plugin.session import LlmperfSession, TestState

__all__ = [
    "NoBenchmark",
    "_power_watch",
    "gpu_clock",
    "gpus",
    "llm_engine",
    "llm_model",
    "llm_requirements",
    "llmperf",
    "power_sampler",
    "uses_boards",
    "uses_llmperf",
]


def uses_llmperf(item: pytest.Item) -> bool:
    """Whether a test asks for one of the fixtures that need an engine."""
    return not {"llmperf", "llm_engine", "llm_model", "llm_requirements"}.isdisjoint(getattr(item, "fixturenames", ()))


def uses_boards(item: pytest.Item) -> bool:
    """Whether a test runs at the session's clock: with an engine, with ``gpu_clock`` or with ``power_sampler``."""
    return uses_llmperf(item) or not {"gpu_clock", "power_sampler"}.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture
def llm_model(request: pytest.FixtureRequest) -> Model:
    """The model of this test: from the marker, else ``--llmperf-model``, else the default of the engine."""
    state: TestState = request.node.stash[STATE]
    return state.spec.model


@pytest.fixture
def llm_requirements(request: pytest.FixtureRequest, gpus: tuple[Board, ...]) -> None:
    """Skips a test whose engine arguments this machine cannot meet, before an engine starts for it.

    For suites that compare engine arguments, with ``@pytest.mark.usefixtures("llm_requirements")``: too few GPUs, too
    old ones, weights that do not fit into their memory, a server whose arguments are not ours to change. What the
    engine itself refuses is still a failure.
    """
    from pytest_llmperf.plugin.requirements import unmet

    state: TestState = request.node.stash[STATE]
    if (reason := unmet(state.spec, gpus)) is not None:
        pytest.skip(reason)


@pytest.fixture
def llm_engine(request: pytest.FixtureRequest) -> RunningEngine:
    """The engine of this test, running; shared by all tests with the same model and engine arguments."""
    session: LlmperfSession = request.config.stash[SESSION]
    return session.engine(request.node)


@pytest.fixture
def llmperf(request: pytest.FixtureRequest, benchmark: Any) -> Iterator[Llmperf]:
    """Measures a workload and gates it: ``run = llmperf.check(Workload(...))``.

    Without a workload: ``llmperf.check_idle()`` what idle boards draw, ``llmperf.check_hardware()`` what devices reach.
    """
    from pytest_llmperf.plugin.checking import Llmperf

    if STATE not in request.node.stash:
        pytest.fail(
            "llmperf has to be known when tests are collected: name it among the test's arguments, or with "
            '@pytest.mark.usefixtures("llmperf"), instead of request.getfixturevalue.',
            pytrace=False,
        )
    fixture = Llmperf(request.config.stash[SESSION], request.node, request.node.stash[STATE], benchmark)
    yield fixture
    if benchmark is not None and not fixture.recorded:
        benchmark.skipped = True  # undecided, or failed: pytest-benchmark need not warn that it was not used


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> tuple[Board, ...]:
    """The boards in use, in CUDA's order; none without a driver."""
    return request.config.stash[BOARDS].boards()


@pytest.fixture
def gpu_clock(request: pytest.FixtureRequest) -> Iterator[int | None]:
    """The SM clock in MHz that the boards in use are held at during this test; ``None`` when it runs free.

    It is that of ``--gpu-clock``, or the parameter of a sweep, after which the former one returns:
    ``@pytest.mark.parametrize("gpu_clock", range(750, 1301, 50), indirect=True)``. A clock beyond what the boards
    support, and one that is the same on them as another of the sweep, is skipped.
    """
    boards = request.config.stash[BOARDS]
    wanted = getattr(request, "param", None)
    if wanted is None:
        held = boards.begin()
        yield None if held is None else held.locked_mhz
        return
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise OptionError(f"The parameter gpu_clock of {request.node.nodeid} is a clock in MHz, not {wanted!r}.")
    boards.begin()
    if (reason := boards.not_swept(wanted, _sweep_of(request.node))) is not None:
        pytest.skip(reason)
    with boards.at(wanted) as clock:
        yield clock.locked_mhz


def _sweep_of(node: pytest.Item) -> list[int]:
    """The clocks of all tests that are the same but for their clock, in the order in which they are to run."""

    def rest(item: pytest.Item) -> tuple[Any, ...]:
        params = getattr(getattr(item, "callspec", None), "params", {})
        # The values of a parameter are the same objects in all tests; equal they need not be able to be.
        others = {name: id(value) for name, value in params.items() if name != "gpu_clock"}
        return item.parent, getattr(item, "originalname", None), others

    specs = [getattr(item, "callspec", None) for item in node.session.items if rest(item) == rest(node)]
    clocks = [spec.params.get("gpu_clock") for spec in specs if spec is not None]
    return [clock for clock in clocks if isinstance(clock, int)]


@pytest.fixture(scope="session")
def _power_watch(request: pytest.FixtureRequest) -> Iterator[SharedWatch]:
    """Reads the boards in use for all windows of the session."""
    from pytest_llmperf.gpu.energy.block import SharedWatch

    watch = SharedWatch(request.config.stash[BOARDS].boards)
    yield watch
    watch.close()


@pytest.fixture
def power_sampler(_power_watch: SharedWatch) -> Callable[[], PowerWindow]:
    """Measures the energy and the mean power of a block of code, without an engine.

    ``with power_sampler() as p: work()``, then ``p.energy_j`` and ``p.power_w``. Where there is nothing to
    read ``p.energy_j`` is ``None`` and ``p.reason`` says why.
    """
    from pytest_llmperf.gpu.energy.block import PowerWindow

    return lambda: PowerWindow(_power_watch)


class NoBenchmark:
    """Stands in for pytest-benchmark when it is switched off with ``-p no:benchmark``."""

    @pytest.fixture
    def benchmark(self) -> None:
        """Nothing to record with."""
        return
