"""What an engine has to know of the session around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_llmperf.engines.account import Calibration

if TYPE_CHECKING:
    from pytest_llmperf.engines.simulated.board import SimulatedBoard

__all__ = ["Site"]


@dataclass
class Site:
    """One for a session; every engine of it is given the same.

    Attributes:
        boards: Product names of the GPUs that the session may use.
        connect_timeout: Seconds until a connection to a server must stand.
        read_timeout: Seconds of silence after which a request has failed.
        start_timeout: Seconds that a server may take to start.
        simulated_boards: What a simulated engine runs on, given how many boards it splits its model over.
        calibrations: Of the load client, by its settings: found once, valid for the session.
    """

    boards: tuple[str, ...] = ()
    connect_timeout: float = 30.0
    read_timeout: float = 120.0
    start_timeout: float = 1800.0
    simulated_boards: Callable[[int], SimulatedBoard] | None = None
    calibrations: dict[str, Calibration] = field(default_factory=dict)
