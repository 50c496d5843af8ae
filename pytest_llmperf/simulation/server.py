"""An engine core in virtual time: when each step is scheduled, launched and done, as in vLLM.

Two things take time. One thread schedules a step and launches it, which keeps it busy for as long as the launch takes.
The GPU executes the steps one after the other: each begins when it is prepared and its predecessor has ended, and ends
no sooner than its launch. The thread goes round:

1. take in the requests that have arrived;
2. schedule a step, if any can be, and launch it;
3. with room for another step, begin again; otherwise wait for the oldest step to end, and give out its tokens.

With asynchronous scheduling two steps may be under way, otherwise one. So the tokens of a step come out when the GPU
has done it and its successor has been launched, and a request that arrives while a step is executed takes part in the
next but one.

Where the same sequences decode for a while and nothing interferes, many steps are done in one go: each costs the same
however many sequences there are, and next to nothing where the GPU can tell at once how all of them go. That changes no
time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

from pytest_llmperf.errors import EngineError
from pytest_llmperf.simulation.ramp import Course, Ramp, evenly, tokens_ns
from pytest_llmperf.simulation.scheduler import Scheduler, Sequence, Step
from pytest_llmperf.simulation.served import Served
from pytest_llmperf.simulation.steps import Pace, StepModel, Work

__all__ = ["NEVER", "Run", "Served", "Server"]

#: Later than anything, in ns.
NEVER = 1 << 62

_NS_PER_S = 1_000_000_000
#: With fewer steps it takes as long to tell how they go as to do them.
_WORTH_IT = 6


class Run(Protocol):
    """Lets a GPU do a step, and tells when it ends."""

    def __call__(
        self, start_ns: int, pace: Callable[[float, float], Pace], *, stretch: float = 1.0, until_ns: int = 0
    ) -> int:
        """The step begins at ``start_ns``, takes ``stretch`` times its pace, and ends no sooner than ``until_ns``."""
        ...


class Outlook(Protocol):
    """Tells how many steps of a GPU will go, and lets it do them."""

    def foresee(self, start_ns: int, ramp: Ramp, until_ns: int) -> Course | None:
        """How steps go of which the first begins at ``start_ns``, up to those that begin by ``until_ns``, if it can."""
        ...

    def follow(self, course: Course, count: int) -> None:
        """Let it do the first so many of them."""
        ...


@dataclass(slots=True)
class _UnderWay:
    step: Step
    end_ns: int


class Server:
    """Serves requests in virtual time; whoever drives it says when they arrive.

    Args:
        scheduler: Decides who takes part in a step; it is this server's alone.
        steps: How long steps take.
        run: Lets the GPU do them.
        skipping: Whether many steps may be done in one go.
        outlook: Tells how the GPU does them, where it can.

    Attributes:
        token_ns: When the tokens of each step came out, in ns, ascending.
        preemptions: How often a sequence was put back for lack of KV cache.
        given: Those that got the tokens that came out with the last :meth:`advance`, where it gave out one step's.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        steps: StepModel,
        run: Run,
        *,
        skipping: bool = True,
        outlook: Outlook | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.token_ns: list[int] = []
        self.given: list[Served] = []
        self.preemptions = 0
        self._steps = steps
        self._run = run
        self._skipping = skipping
        self._outlook = outlook
        self._depth = 2 if scheduler.async_scheduling else 1
        self._under_way: deque[_UnderWay] = deque()
        self._arrivals: list[tuple[int, int, Served]] = []
        self._withdrawals: list[tuple[int, int, Served]] = []
        self._count = 0
        self._thread_ns = 0
        self._gpu_ns = 0
        self._blocked = False

    @property
    def blocked(self) -> bool:
        """Whether it waits for a step to end: what it does next is to give out tokens."""
        return self._blocked

    def submit(self, served: Served, arrives_ns: int) -> None:
        """A request is on its way and will be there at a time that has not been reached."""
        self._count += 1
        heappush(self._arrivals, (arrives_ns, self._count, served))

    def withdraw(self, served: Served, at_ns: int) -> None:
        """A request is given up: it gets no token later than that."""
        if not served.ended:
            served.ended = True
            self._count += 1
            heappush(self._withdrawals, (at_ns, self._count, served))

    def next_ns(self) -> int | None:
        """When it does something next; ``None``: not before a request is submitted."""
        if self._blocked:
            return max(self._thread_ns, self._under_way[0].end_ns)
        if self._under_way or self.scheduler.running or self.scheduler.waiting:
            return self._thread_ns
        coming = [events[0][0] for events in (self._arrivals, self._withdrawals) if events]
        return max(self._thread_ns, min(coming)) if coming else None

    def advance(self, horizon_ns: int = 0) -> list[Served]:
        """Do what is due next, and more as long as all tokens come out up to the horizon.

        Returns:
            The requests that finished.

        Raises:
            EngineError: A request can never be served, or those that wait never will be.
        """
        now = self.next_ns()
        if now is None:
            return []
        self._thread_ns = now
        self.given = []
        self._drop(now)
        if self._blocked:
            return self._give_out(now)
        while self._arrivals and self._arrivals[0][0] <= now:
            self._take_in(heappop(self._arrivals)[2], now)
        if not self._skip(horizon_ns):
            self._turn(now)
        return []

    def rest(self, now_ns: int) -> None:
        """Forget all requests and steps: nothing of them happens after now."""
        for sequence in [*self.scheduler.running, *self.scheduler.waiting]:
            self.scheduler.abort(sequence)
        for under_way in self._under_way:
            self.scheduler.complete(under_way.step)
        self._under_way.clear()
        self._arrivals.clear()
        self._withdrawals.clear()
        self.token_ns, self.given, self._blocked = [], [], False
        self._thread_ns = self._gpu_ns = now_ns

    def _take_in(self, served: Served, now: int) -> None:
        if not served.ended:
            served.queued_ns = now
            served.sequence.data = served
            self.scheduler.add(served.sequence)

    def _drop(self, now: int) -> None:
        while self._withdrawals and self._withdrawals[0][0] <= now:
            self.scheduler.abort(heappop(self._withdrawals)[2].sequence)

    def _turn(self, now: int) -> None:
        step = self.scheduler.schedule()
        if step is not None:
            self.preemptions += len(step.preempted)
            for sequence, _, _ in step.prefills:
                sequence.data.scheduled_ns = sequence.data.scheduled_ns or now
            leader = (step.prefills[0][0] if step.prefills else step.decodes[0]).data
            self._launch(self._work(step), leader.factor)
            self._under_way.append(_UnderWay(step, self._gpu_ns))
        elif not self._under_way and (self.scheduler.running or self.scheduler.waiting):
            raise EngineError(
                f"The simulated scheduler is stuck with {len(self.scheduler.waiting)} requests that wait.",
                remedy="Raise max_num_batched_tokens or the KV cache (num_gpu_blocks_override), and report this.",
            )
        self._blocked = len(self._under_way) == self._depth or (step is None and bool(self._under_way))

    def _work(self, step: Step) -> Work:
        contexts = [sequence.computed for sequence in step.decodes]
        return self._steps.work(
            [(before, count) for _, before, count in step.prefills],
            sampled=len(step.sampled),
            decodes=len(step.decodes),
            cache_bytes=sum(map(self._steps.cache_bytes, contexts)),
            attention_flops=sum(map(self._steps.attention_flops, contexts)),
        )

    def _launch(self, work: Work, factor: float) -> None:
        """Keep the thread busy for as long as the launch takes, and the GPU from when it can begin."""
        prepared_ns = self._thread_ns + round(self._steps.prepare_s * factor * _NS_PER_S)
        launched_ns = self._thread_ns + round(self._steps.launch_s(work) * factor * _NS_PER_S)
        self._gpu_ns = self._run(
            max(prepared_ns, self._gpu_ns), partial(self._steps.pace, work), stretch=factor, until_ns=launched_ns
        )
        self._thread_ns = launched_ns

    def _give_out(self, now: int) -> list[Served]:
        step = self._under_way.popleft().step
        self._blocked = False
        finished = [sequence.data for sequence in self.scheduler.complete(step)]
        self.token_ns.append(now)
        self.given = [sequence.data for sequence in step.sampled]
        self._note_leads(step.sampled, 1)
        for served in finished:
            served.ended = True
        return finished

    def _note_leads(self, sequences: list[Sequence], count: int) -> None:
        """These have got the last so many tokens."""
        given = len(self.token_ns)
        for sequence in sequences:
            lead = given - sequence.generated
            if lead != sequence.data.lead:
                sequence.data.resume(lead, sequence.generated - count)

    def _skip(self, horizon_ns: int) -> bool:
        """Do the coming decodes of the same sequences in one go, as far as nothing interferes.

        What interferes is a request that arrives before a step is scheduled, and tokens that come out after the horizon
        or when a request has been given up: that step is launched, and its predecessor's tokens are not given out yet.

        Returns:
            Whether any step was launched.
        """
        if not self._skipping or len(self._under_way) != self._depth - 1 or self._thread_ns >= horizon_ns:
            return False
        count = self.scheduler.steady()
        if count < 2:
            return False
        running = self.scheduler.running
        count, load = evenly(self._loads, count)
        arrival_ns = self._arrivals[0][0] if self._arrivals else NEVER
        withdrawal_ns = self._withdrawals[0][0] if self._withdrawals else NEVER
        limit_ns = min(horizon_ns, withdrawal_ns - 1)
        factor, number, work_of = running[0].data.factor, len(running), self._steps.work

        def work(ahead: int) -> Work:
            cache_bytes, flops = load(ahead)
            return work_of((), sampled=number, decodes=number, cache_bytes=cache_bytes, attention_flops=flops)

        index = len(self.token_ns)
        give_out = self.token_ns.append
        ends = [under_way.end_ns for under_way in self._under_way]
        late = False
        ahead = 0
        while ahead < count and self._thread_ns < arrival_ns:
            if foreseen := self._foreseen(work, ahead, count, factor, arrival_ns, limit_ns, ends):
                ahead += foreseen
                continue
            self._launch(work(ahead), factor)
            ends.append(self._gpu_ns)
            out_ns = max(self._thread_ns, ends[0])
            if out_ns > limit_ns:
                late = True
                break
            del ends[0]
            self._thread_ns = out_ns
            give_out(out_ns)
            ahead += 1
        done = len(self.token_ns) - index
        if done:
            self.scheduler.skip(done)
            self._note_leads(running, done)
        if late:
            step = self.scheduler.schedule()
            assert step is not None
            self._under_way.append(_UnderWay(step, 0))
            self._blocked = True
        for under_way, end_ns in zip(self._under_way, ends, strict=True):
            under_way.end_ns = end_ns
        return True

    def _foreseen(
        self, work: Callable[[int], Work], first: int, count: int, factor: float, arrival_ns: int, limit_ns: int,
        ends: list[int],
    ) -> int:  # fmt: skip
        """Do those of the coming decodes that the GPU can tell of at once: while it never waits for one.

        Args:
            work: Of the step so many ahead.
            first: How far ahead the next one is.
            count: How many there are, those that have been done included.
            factor: On every time.
            arrival_ns: When a step is no longer launched.
            limit_ns: After it no tokens come out.
            ends: When the steps under way end, which is brought up to date.

        Returns:
            How many steps have been launched and have given out tokens, their own or their predecessors'.
        """
        prepare_ns = round(self._steps.prepare_s * factor * _NS_PER_S)
        start_ns, pace = self._gpu_ns, self._steps.pace
        if self._outlook is None or count - first < _WORTH_IT or self._thread_ns + prepare_ns > start_ns:
            return 0
        launch_ns = round(self._steps.launch_s(work(first)) * factor * _NS_PER_S)
        ramp = Ramp(
            lambda ahead, sm_mhz, memory_mhz: pace(work(first + ahead), sm_mhz, memory_mhz),
            count - first, factor, launch_ns,
        )  # fmt: skip
        course = self._outlook.foresee(start_ns, ramp, min(arrival_ns, limit_ns))
        if course is None:
            return 0
        outs = tokens_ns(self._thread_ns, launch_ns, (ends + course.ends_ns)[: len(course.ends_ns)])
        if any(out + prepare_ns > end for out, end in zip(outs, course.ends_ns, strict=False)):
            return 0
        # A step is launched when the one before has given out tokens.
        done = min(len(outs), bisect_left(outs, arrival_ns) + 1, bisect_right(outs, limit_ns))
        if done:
            self._outlook.follow(course, done)
            ends[:] = (ends + course.ends_ns)[done : done + len(ends)]
            self._thread_ns, self._gpu_ns = outs[done - 1], course.ends_ns[done - 1]
            self.token_ns += outs[:done]
        return done

    def _loads(self, ahead: int) -> tuple[int, int]:
        """KV bytes and attention FLOPs of the step so many steps ahead, all running sequences together."""
        contexts = [sequence.computed + ahead for sequence in self.scheduler.running]
        return sum(map(self._steps.cache_bytes, contexts)), sum(map(self._steps.attention_flops, contexts))
