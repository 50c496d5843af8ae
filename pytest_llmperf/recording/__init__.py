"""From a measurement and its verdicts to the record that results.json keeps: one module a part of it."""

from pytest_llmperf.recording.outputs import outputs_record
from pytest_llmperf.recording.record import Beside, cut_short_record, failure_record, record_of
from pytest_llmperf.recording.verdicts import definitions

__all__ = ["Beside", "cut_short_record", "definitions", "failure_record", "outputs_record", "record_of"]
