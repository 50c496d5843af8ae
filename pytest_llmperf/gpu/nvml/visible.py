"""Which boards CUDA would use, in its order: ``CUDA_VISIBLE_DEVICES`` read as CUDA reads it.

NVML knows nothing of the variable: it shows every board of the machine, in an order of its own. Who takes its first
board for CUDA's first locks and reads the wrong one. The rules, and where each comes from:

1. Unset: all boards. Set to nothing: none. Boards appear in the order of the list. A list ends before its first invalid
   entry, so ``0,2,-1,1`` is ``0,2``. (CUDA C++ Programming Guide, "CUDA Environment Variables".)
2. A board is named by its index or by its UUID as ``nvidia-smi -L`` prints it, or by as many of its first characters
   as no other board shares. (The same.) One that several boards share is invalid.
3. An index is read like C's ``strtoul`` reads a decimal number: spaces before it are skipped, it ends at the first
   character that is no digit, so ``1abc`` is 1 and ``0x1`` is 0, and what begins with none is invalid. A board that is
   named twice makes the whole list empty. A list of one kind ends where the other begins. (CUDA's guide is silent here;
   these are PyTorch's findings, ``torch.cuda._parse_visible_devices``, which count devices without CUDA by them.)
4. Indices count the boards by PCI bus with ``CUDA_DEVICE_ORDER=PCI_BUS_ID``; otherwise (``FASTEST_FIRST``) from the
   fastest to the slowest by a rule that CUDA does not disclose. (CUDA's guide.) Boards of one product are then in the
   order of the bus. For different ones cores times clock is our guess, and :attr:`Selection.doubt` says so.
5. A board in MIG mode is used through one of its instances, named ``MIG-<uuid>`` or, by older drivers,
   ``MIG-<GPU uuid>/<GPU instance>/<compute instance>``. One process sees one instance, the first; and when it sees one
   it sees no whole board. An index or UUID of such a board stands for its first instance. (NVIDIA's MIG User Guide,
   "CUDA Device Enumeration"; it names both limits as those of today's drivers.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_llmperf.gpu import Board, MigInstance

__all__ = ["Selection", "select"]


@dataclass(frozen=True)
class Selection:
    """The boards that a process may use.

    Attributes:
        boards: In CUDA's order; one in MIG mode has its :attr:`~pytest_llmperf.gpu.Board.mig` set.
        doubt: Why CUDA may see others, as a sentence with its remedy; ``None`` where that is out of the question.
    """

    boards: tuple[Board, ...]
    doubt: str | None = None


class _InvalidError(Exception):
    """An entry that names no board."""


def select(boards: Sequence[Board], visible: str | None, device_order: str | None = None) -> Selection:
    """The boards that CUDA would use, in its order.

    Args:
        boards: All boards of the machine.
        visible: ``CUDA_VISIBLE_DEVICES``; ``None`` when it is unset.
        device_order: ``CUDA_DEVICE_ORDER``; ``None`` when it is unset.
    """
    ordered = _cuda_order(boards, device_order)
    chosen = [_usable(b) for b in ordered if _has_parts(b)] if visible is None else _listed(ordered, visible)
    first_part = next((board for board in chosen if board.mig is not None), None)
    return Selection((first_part,) if first_part else tuple(chosen), _doubt(boards, visible, device_order))


def _listed(ordered: Sequence[Board], visible: str) -> list[Board]:
    """The boards of a list, up to its first invalid entry; none when one is named twice."""
    entries = [entry.strip(" \t\n\r\v\f") for entry in visible.split(",")]
    kind = _kind(entries[0])
    chosen: list[Board] = []
    for entry in entries:
        try:
            board = _named(ordered, entry, kind)
        except _InvalidError:
            break
        if any((board.uuid, board.mig) == (other.uuid, other.mig) for other in chosen):
            return []
        chosen.append(board)
    return chosen


def _kind(entry: str) -> str:
    return next((prefix for prefix in ("GPU-", "MIG-") if entry.startswith(prefix)), "index")


def _named(ordered: Sequence[Board], entry: str, kind: str) -> Board:
    if _kind(entry) != kind:
        raise _InvalidError
    if kind == "MIG-":
        return _instance(ordered, entry)
    if kind == "GPU-":
        found = [board for board in ordered if board.uuid.startswith(entry)]
        if len(found) != 1:
            raise _InvalidError
        return _usable(found[0])
    number = re.match(r"\+?([0-9]+)", entry)
    if number is None or len(number[1].lstrip("0")) > 9 or int(number[1]) >= len(ordered):
        raise _InvalidError
    return _usable(ordered[int(number[1])])


def _instance(ordered: Sequence[Board], entry: str) -> Board:
    """The board of a MIG instance, by its UUID, a unique beginning of it, or the older form."""
    found = [
        replace(board, mig=part)
        for board in ordered
        for part in board.mig_instances
        if part.uuid.startswith(entry) or _old_name(board, part) == entry
    ]
    if len(found) != 1:
        raise _InvalidError
    return found[0]


def _old_name(board: Board, part: MigInstance) -> str:
    return f"MIG-{board.uuid}/{part.gpu_instance}/{part.compute_instance}"


def _has_parts(board: Board) -> bool:
    """Whether CUDA can use it at all: not one in MIG mode that nobody has cut yet."""
    return not board.mig_mode or bool(board.mig_instances)


def _usable(board: Board) -> Board:
    if not _has_parts(board):
        raise _InvalidError
    return replace(board, mig=board.mig_instances[0]) if board.mig_mode else board


def _cuda_order(boards: Sequence[Board], device_order: str | None) -> list[Board]:
    by_bus = sorted(boards, key=lambda board: ((board.pci_bus_id or "").lower(), board.index))
    if device_order == "PCI_BUS_ID" or any(_speed(board) is None for board in boards):
        return by_bus
    return sorted(by_bus, key=lambda board: -(_speed(board) or 0))


def _speed(board: Board) -> int | None:
    return None if board.cores is None or board.max_sm_clock_mhz is None else board.cores * board.max_sm_clock_mhz


def _doubt(boards: Sequence[Board], visible: str | None, device_order: str | None) -> str | None:
    by_index = visible is not None and re.match(r"\s*\+?[0-9]", visible) is not None
    if not by_index or device_order == "PCI_BUS_ID" or len({board.name for board in boards}) < 2:
        return None
    return (
        f"CUDA_VISIBLE_DEVICES={visible} counts boards of different products by speed, in an order that CUDA does not "
        "disclose. Set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the boards by UUID (nvidia-smi -L)."
    )
