"""Boards that do as they are told, and tell what they were told."""

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu import Board, Unreadable


def board(index, **fields):
    given = {"name": "NVIDIA H200", "uuid": f"GPU-{index}", "driver": "580.95.05", "power_limit_w": 700.0}
    return Board(index=index, **{**given, "memory_bytes": 2**37, **fields})


class FakeDevice:
    """Logs what is asked of it; refuses what ``refuses`` says, with that error."""

    def __init__(self, index, log, *, clocks=range(345, 1981, 15), refuses=()):
        self.board = board(index)
        self._log = log
        self._clocks = clocks
        self.refuses = dict(refuses)

    def supported_sm_clocks_mhz(self, memory_clock_mhz=None):
        return Unreadable("supported SM clocks: Not Supported") if self._clocks is None else tuple(self._clocks)

    def lock_sm_clock(self, mhz):
        self._do("lock", mhz)

    def unlock_sm_clock(self):
        self._do("unlock")

    def lock_memory_clock(self, mhz):
        self._do("lock memory", mhz)

    def unlock_memory_clock(self):
        self._do("unlock memory")

    def _do(self, what, *arguments):
        refusal = self.refuses.get((what, *arguments)) or self.refuses.get(what)
        if refusal is not None:
            raise refusal
        self._log.append((self.board.index, what, *arguments))


NOT_SUPPORTED = GpuError("The driver does not do that: Not Supported.")
NO_PERMISSION = GpuPermissionError("The driver does not do that: Insufficient Permissions.")
