"""Xid errors in words, after NVIDIA's "Xid Errors" (docs.nvidia.com/deploy/xid-errors)."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["in_words"]

#: Those that a board which computes is likely to report.
_MEANINGS = {
    8: "the GPU stopped processing",
    11: "invalid or corrupted push buffer stream",
    13: "graphics engine exception, mostly a fault of the program",
    31: "GPU memory page fault, mostly a fault of the program",
    32: "invalid or corrupted push buffer stream, mostly bad PCIe",
    38: "driver firmware error",
    43: "the GPU stopped processing after a fault of the program",
    44: "graphics engine fault during a context switch",
    45: "preemptive cleanup after an earlier error, or of a program that was killed",
    48: "double-bit ECC error, not corrected",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "a memory page was retired or a row remapped",
    64: "retiring a memory page or remapping a row failed",
    68: "video decoder exception",
    69: "graphics engine class error",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "high rate of single-bit ECC errors",
    94: "contained ECC error: one program was hit",
    95: "uncontained ECC error: any program may have been hit",
    109: "context switch timeout",
    110: "security fault",
    119: "GSP RPC timeout: the GPU's system processor does not answer",
    120: "error of the GPU's system processor (GSP)",
    121: "C2C link error",
    122: "SPI read failure",
    136: "link training failed",
    137: "NVLink privilege error: an illegal access to another GPU's memory",
    140: "unrecovered ECC error",
    143: "the GPU could not be initialised",
    154: "the driver wants this GPU reset or the machine rebooted",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}


def in_words(numbers: Iterable[int]) -> str:
    """The errors with what they mean, each once, in the order in which they came."""
    return ", ".join(
        f"Xid {number} ({_MEANINGS.get(number, 'see docs.nvidia.com/deploy/xid-errors')})"
        for number in dict.fromkeys(numbers)
    )
