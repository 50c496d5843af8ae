"""Calls into NVML's bindings, and the one place that turns their errors into ours."""

from __future__ import annotations

from typing import Any, Literal

from pytest_llmperf.errors import GpuError, GpuPermissionError
from pytest_llmperf.gpu import Reading, Unreadable

__all__ = ["Driver"]

_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_TIMEOUT = 10
_FUNCTION_NOT_FOUND = 13
_GPU_IS_LOST = 15
_RESET_REQUIRED = 16

#: What helps, by NVML's error code.
_REMEDIES = {
    _NO_PERMISSION: "Run as root, or with the capability CAP_SYS_ADMIN.",
    9: "Load NVIDIA's driver; `nvidia-smi` says what it lacks.",
    12: "Install NVIDIA's driver: it brings libnvidia-ml.so.1 along.",
    _FUNCTION_NOT_FOUND: "Update NVIDIA's driver.",
    _GPU_IS_LOST: "Look for Xid errors in `dmesg`, then reset the board with `sudo nvidia-smi -r` or reboot.",
    _RESET_REQUIRED: "Reset the board with `sudo nvidia-smi -r`, or reboot.",
    18: "The driver was updated under way: reboot, or load the new kernel module.",
}
#: What a refusal says about the board, by NVML's error code; the others are surprising.
_CAUSES: dict[int, Literal["absent", "lost"]] = {
    _NOT_SUPPORTED: "absent",
    _FUNCTION_NOT_FOUND: "absent",
    _GPU_IS_LOST: "lost",
    _RESET_REQUIRED: "lost",
}


class Driver:
    """NVML, asked by the names of its functions.

    Args:
        bindings: The module ``pynvml``. Names that an older release of it lacks count as refused by the driver.
    """

    def __init__(self, bindings: Any) -> None:
        self.bindings = bindings

    def read(self, what: str, function: str, *arguments: Any) -> Reading[Any]:
        """What a function returns, or why it refuses.

        Args:
            what: What is read, as the reason names it.
            function: The name of the function.
            arguments: Its arguments.
        """
        try:
            return self._function(function)(*arguments)
        except self.bindings.NVMLError as error:
            return Unreadable(f"{what}: {error} ({function})", _CAUSES.get(error.value, "other"))

    def poll(self, what: str, function: str, *arguments: Any) -> Reading[Any] | None:
        """As :meth:`read`, of a function that waits; ``None`` when there was nothing in time."""
        try:
            return self._function(function)(*arguments)
        except self.bindings.NVMLError as error:
            if error.value == _TIMEOUT:
                return None
            return Unreadable(f"{what}: {error} ({function})", _CAUSES.get(error.value, "other"))

    def act(self, what: str, function: str, *arguments: Any) -> Any:
        """Call a function that must not fail.

        Args:
            what: What is done, as ``"lock the SM clock of GPU 0 at 1500 MHz"``.
            function: The name of the function.
            arguments: Its arguments.

        Raises:
            GpuPermissionError: this user may not.
            GpuError: the driver refused.
        """
        try:
            return self._function(function)(*arguments)
        except self.bindings.NVMLError as error:
            kind = GpuPermissionError if error.value == _NO_PERMISSION else GpuError
            problem = f"The driver does not {what}: {error} ({function})."
            raise kind(problem, remedy=_REMEDIES.get(error.value)) from None

    def refusal(self, code: int) -> str | None:
        """The driver's words for a return code that a value carries; ``None`` for success."""
        return None if code == 0 else str(self.bindings.NVMLError(code))

    def _function(self, name: str) -> Any:
        function = getattr(self.bindings, name, None)
        if function is None:
            raise self.bindings.NVMLError(_FUNCTION_NOT_FOUND)
        return function
