"""Every error that a user of the plugin can cause.

::

    LlmperfError
    ├── OptionError           a command-line option, ini value or marker argument is wrong
    ├── MachineError          this machine cannot measure what was asked for (no GPU, no engine, no permission)
    │   └── GpuError           the driver refused what was asked of a board
    │       └── GpuPermissionError   it refused because this user may not
    ├── WorkloadError         a workload that contradicts itself, or that the model cannot serve
    ├── EngineError           an engine did not start, or died
    │   └── RequestError      one request failed; the engine may still be alive
    ├── ArchitectureError     a model's config.json is unreadable, incomplete or contradictory
    ├── HardwareError         a peak of the GPU is needed and not known
    ├── BaselineError         a stored baseline cannot be read, trusted or written
    ├── ResultsError          a results file cannot be read or written
    └── ChartError            the charts of a report cannot be drawn

``OptionError`` and ``MachineError`` end the session with pytest's exit status 4: nothing can be measured. Where only
one test's marker is at fault, and for all the others, the test in which they occur fails. Each message is one sentence
that says what is wrong and where, followed by the remedy: the command or the edit that mends it.
"""

from __future__ import annotations

__all__ = [
    "ArchitectureError",
    "BaselineError",
    "ChartError",
    "EngineError",
    "GpuError",
    "GpuPermissionError",
    "HardwareError",
    "LlmperfError",
    "MachineError",
    "OptionError",
    "RequestError",
    "ResultsError",
    "WorkloadError",
]


class LlmperfError(Exception):
    """The root of the tree.

    Args:
        problem: One sentence: what is wrong, and where.
        remedy: What the user can do about it; printed after the problem.
    """

    def __init__(self, problem: str, *, remedy: str | None = None) -> None:
        super().__init__(problem, remedy)
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.problem} {self.remedy}" if self.remedy else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.problem, self.remedy))


def _rebuild(kind: type[LlmperfError], problem: str, remedy: str | None) -> LlmperfError:
    return kind(problem, remedy=remedy)


class OptionError(LlmperfError):
    """A command-line option, ini value or marker argument is wrong."""


class MachineError(LlmperfError):
    """This machine cannot measure what was asked for."""


class GpuError(MachineError):
    """The driver refused what was asked of a board; the message holds the driver's words."""


class GpuPermissionError(GpuError):
    """The driver refused what was asked of a board because this user may not."""


class WorkloadError(LlmperfError):
    """A workload contradicts itself, or the model at hand cannot serve it."""


class EngineError(LlmperfError):
    """An engine did not start, or died while it was used."""


class RequestError(EngineError):
    """One request failed; the engine may still be alive."""


class ArchitectureError(LlmperfError):
    """A model's config.json is unreadable, incomplete or contradictory; the message names the key."""


class HardwareError(LlmperfError):
    """A peak of the GPU is needed and not known; the message names the line to add."""


class BaselineError(LlmperfError):
    """A stored baseline cannot be read, trusted or written; the message names the file."""


class ResultsError(LlmperfError):
    """A results file cannot be read or written; the message names the file."""


class ChartError(LlmperfError):
    """The charts of a report cannot be drawn; all else of it can be written."""
