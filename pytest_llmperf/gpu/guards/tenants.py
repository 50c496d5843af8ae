"""Who computes on a board beside the engine that is measured.

The driver lists the processes of a board by their numbers, and which of them are the engine's is known by number too.
In a container the two may count differently: the driver as the host does. Then not even the engine is among those
listed, and a foreign process cannot be told from it. So what is listed counts as foreign only once one of our own was
recognised on any board.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from pytest_llmperf.gpu import Board, Device, GpuProcess, Unreadable

__all__ = ["Tenants", "strangers"]

_MIB = 2**20


@dataclass(frozen=True)
class _Tenant:
    """A process on a board that was not known as ours when it was seen.

    Attributes:
        process: As the driver lists it.
        name: What it is called; ``None`` when no process of this number can be seen from here.
    """

    process: GpuProcess
    name: str | None

    def __str__(self) -> str:
        memory = self.process.memory_bytes
        facts = [self.name or "hidden from here", *([] if memory is None else [f"{memory / _MIB:,.0f} MiB"])]
        return f"PID {self.process.pid} ({', '.join(facts)})"


class Tenants:
    """Collects who was seen on some boards during one measurement after the other.

    Args:
        own: The numbers of the processes that may be there.
    """

    def __init__(self, own: Callable[[], Collection[int]]) -> None:
        self._ask = own
        self._own: set[int] = set()
        self._seen: dict[str, tuple[Board, dict[int, _Tenant]]] = {}
        self._recognised = False

    def forget(self) -> None:
        """Begin anew, for the next measurement."""
        self._own.clear()
        self._seen.clear()

    def look(self, devices: Iterable[Device]) -> list[Unreadable]:
        """See who is there now.

        Returns:
            Why it cannot be seen, board by board.
        """
        refused = []
        listed = []
        for device in devices:
            processes = device.processes()
            if isinstance(processes, Unreadable):
                refused.append(processes)
            elif processes:
                listed.append((device.board, processes))
        if listed:
            self._own.update(self._ask())
        for board, processes in listed:
            self._take(board, processes)
        return refused

    def _take(self, board: Board, processes: Sequence[GpuProcess]) -> None:
        from pytest_llmperf.local_processes import described

        _, seen = self._seen.setdefault(board.uuid, (board, {}))
        for process in processes:
            if process.pid in self._own:
                self._recognised = True
            elif process.pid not in seen:
                seen[process.pid] = _Tenant(process, described(process.pid))

    def judge(self) -> tuple[list[str], list[str]]:
        """What is to be said of those seen since the last :meth:`forget`: what makes invalid, and what is doubtful."""
        faults, doubts = [], []
        for board, seen in self._seen.values():
            # Some may have become known as ours only later.
            strangers = [tenant for pid, tenant in seen.items() if pid not in self._own]
            if strangers and self._recognised:
                faults.append(_shared(board, strangers))
            elif len(strangers) > 1 or any(tenant.name is not None for tenant in strangers):
                doubts.append(_unknown(board, strangers))
        return faults, doubts


def strangers(devices: Iterable[Device], own: int | None = None) -> str | None:
    """Who is on boards that should be empty, or hold a single process of ours; ``None`` where nobody is to be seen.

    Args:
        devices: The boards.
        own: The number of that process, which the driver may list under another one; ``None``: there is none.
    """
    from pytest_llmperf.local_processes import described

    found = []
    for device in devices:
        processes = device.processes()
        if isinstance(processes, Unreadable):
            continue  # the guards of every other measurement say so
        others = [process for process in processes if process.pid != own]
        if own is not None and len(others) == len(processes):
            others = others[1:]
        if others:
            found.append(_shared(device.board, [_Tenant(other, described(other.pid)) for other in others]))
    return "; ".join(found) or None


def _shared(board: Board, strangers: Sequence[_Tenant]) -> str:
    who = "another process" if len(strangers) == 1 else "other processes"
    return f"{who} computed on GPU {board.index}: {', '.join(map(str, strangers))}"


def _unknown(board: Board, strangers: Sequence[_Tenant]) -> str:
    if len(strangers) == 1:
        return (
            f"On GPU {board.index} only {strangers[0]} was seen to compute, which is not known as one of the engine's: "
            "it was taken for the engine."
        )
    return (
        f"On GPU {board.index} {len(strangers)} processes were seen to compute, and none has the number of one of the "
        f"engine's ({', '.join(map(str, strangers))}): in a container of its own PID namespace foreign processes "
        "cannot be told from the engine's. Run it with --pid=host to have them told."
    )
