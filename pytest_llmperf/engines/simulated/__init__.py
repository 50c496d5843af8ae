"""A GPU that is not there, with a server on it: everything happens in virtual time and is marked simulated."""

from pytest_llmperf.engines.simulated.engine import SimulatedEngine
from pytest_llmperf.engines.simulated.settings import check_settings

__all__ = ["SimulatedEngine", "check_settings"]
