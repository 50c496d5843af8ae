"""What was measured in one test: how its launches are taken, what they come to, what of it is gated and recorded."""

from __future__ import annotations

from pytest_llmperf.measurement.base import BaseMeasurement, identity_of
from pytest_llmperf.measurement.gauges import GaugeMeasurement, HardwareMeasurement, IdleMeasurement
from pytest_llmperf.measurement.phases import PhaseMeasurement
from pytest_llmperf.measurement.plain import LaunchOf, Measurement
from pytest_llmperf.measurement.rate import RateMeasurement

__all__ = [
    "BaseMeasurement",
    "GaugeMeasurement",
    "HardwareMeasurement",
    "IdleMeasurement",
    "LaunchOf",
    "Measurement",
    "PhaseMeasurement",
    "RateMeasurement",
    "identity_of",
]
