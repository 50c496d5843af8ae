"""What the hardware allows: a model's bytes and FLOPs, a GPU's peaks, and the roofline between them."""

from __future__ import annotations

from pytest_llmperf.arithmetic.architecture import Architecture
from pytest_llmperf.arithmetic.hardware import Hardware

__all__ = ["Architecture", "Hardware"]
