"""A request that an engine core serves, and when its tokens came out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pytest_llmperf.simulation.scheduler import Sequence

__all__ = ["Served"]


@dataclass(eq=False, slots=True)
class Served:
    """A request and what became of it; times in ns.

    Attributes:
        sequence: What the scheduler is given.
        factor: On every time that passes for it.
        data: The owner's own.
        queued_ns: The engine took it in; 0: not yet.
        scheduled_ns: The first step with it was scheduled; 0: not yet.
        ended: Whether it finished or was withdrawn.
        lead: By how much the place of a token among these times is ahead of its place among the request's own: the
            same from token to token, unless a step came without one for it.
    """

    sequence: Sequence
    factor: float = 1.0
    data: Any = None
    queued_ns: int = 0
    scheduled_ns: int = 0
    ended: bool = False
    lead: int = -1
    _runs: list[tuple[int, int]] = field(default_factory=list)

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Which of :attr:`~pytest_llmperf.simulation.server.Server.token_ns` are the times of its tokens.

        First and last but one of each run of steps without an interruption.
        """
        ends = [*(before for _, before in self._runs), self.sequence.generated]
        return [(lead + before, lead + end) for (lead, before), end in zip(self._runs, ends[1:], strict=True)]

    def resume(self, lead: int, before: int) -> None:
        """After so many tokens, others come that have another lead."""
        self.lead = lead
        self._runs.append((lead, before))
