"""Boards with round numbers: what a mechanism does must not depend on what was fitted to a real board."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from pytest_llmperf.simulation.board import BoardModel

#: Watts of a board with a limit of 700 W; those of other boards are to their limits as these are to that.
_WATTS = {"idle_w": 80, "loaded_w": 40, "busy_w": 50, "dram_w": 100, "memory_w": 300, "compute_w": 1000}
_LIMIT_W = 700


@cache
def round_board(key: str = "h200") -> BoardModel:
    """A product with its data sheet and its sensors, and everything else in round numbers.

    The bandwidth falls below half of the highest SM clock, the voltage down to 60 % of it.
    """
    board = BoardModel.named(key)
    top, limit_w = board.product.sm_clocks_mhz[1], board.hardware.power_limit_w
    assert limit_w is not None
    return altered(
        board,
        memory={"weights_share": 0.8, "cache_share": 0.9, "cache_share_8bit": 0.6, "knee_mhz": 0.5 * top},
        compute={
            "matmul_share": 0.75, "attention_share": 0.5, "blend": 4.0, "token_s": 4e-9, "head_s": 1e-8,
            "sequence_s": 5e-6, "layer_s": 2e-5, "step_s": 1e-4,
        },
        host={
            "submit_s": 2.5e-4, "ingest_s": 1e-3, "deliver_s": 1e-3, "prepare_s": 5e-4, "graph_launch_s": 1e-3,
            "sequence_launch_s": 1e-5, "piecewise_launch_s": 1e-4, "layer_launch_s": 2e-4, "mixed_launch_s": 3e-4,
            "eager_layer_launch_s": 5e-4,
        },
        links={"latency_s": 1e-5, "bandwidth": 2e11},
        power={
            **{name: watts * limit_w / _LIMIT_W for name, watts in _WATTS.items()},
            "voltage_floor": 0.7, "voltage_knee_mhz": 0.6 * top, "limit_s": 0.05,
        },
    )  # fmt: skip


def altered(board: BoardModel, **sections: dict[str, float]) -> BoardModel:
    """A board with other parameters: ``altered(board, memory={"knee_mhz": 1000})``."""
    return replace(board, **{name: replace(getattr(board, name), **values) for name, values in sections.items()})
