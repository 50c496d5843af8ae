"""Boards in software, for the simulated engines: the contract of real ones, in virtual time."""

from pytest_llmperf.gpu.simulated.boards import BoardGroup, SimulatedBoards
from pytest_llmperf.gpu.simulated.device import SimulatedDevice
from pytest_llmperf.gpu.simulated.watch import SimulatedWatch

__all__ = ["BoardGroup", "SimulatedBoards", "SimulatedDevice", "SimulatedWatch"]
