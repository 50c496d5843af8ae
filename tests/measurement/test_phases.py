"""A measurement of phases: which windows it takes, and what comes out of them."""

from dataclasses import replace

import pytest

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.measurement import PhaseMeasurement
from pytest_llmperf.runner import Launch, with_readings
from pytest_llmperf.workload import Distribution, Workload

from ..fakes import INFO, repeat, request
from ..gpu.readings import board_samples

WHOLE = Workload(512, 256)
#: Joules a prompt token and an output token take; the boards draw what that comes to.
PREFILL, DECODE = 0.02, 2.0
IDLE = 60.0


class Bench:
    """A machine on which a request takes 20 ms of prefill and 5 ms an output token, and each token its joules."""

    def __init__(self, *, invalid=(), boards=True, dearer=1.0):
        self.taken = []
        self.invalid = invalid
        self.boards = boards
        self.dearer = dearer

    def __call__(self, workload, *, test, repeats, allowed_failures, doing=""):
        self.taken.append((doing, workload.input_len, workload.output_len, test))
        lasts = 20 + 5 * (workload.output_len - 1)
        count = max(repeats, 1 + 2000 // lasts)
        joules = PREFILL * workload.input_len + DECODE * workload.output_len * (self.dearer if doing == "decode" else 1)
        traces = [self.repeat(workload, number, lasts) for number in range(count)]
        samples = board_samples(watts=joules / lasts * 1e3, seconds=count * lasts / 1e3 + 0.2)
        launch = Launch(
            0, INFO, tuple(traces), samples=(samples,) if self.boards else (),
            invalid="no" if doing in self.invalid else None, warnings=(f"seen {doing}",),
        )  # fmt: skip
        return with_readings(launch, IDLE)

    def repeat(self, workload, number, lasts):
        start = 100 + number * lasts
        arrivals = [start + 20 + 5 * n for n in range(workload.output_len)]
        one = request(*arrivals, due=start, prompt=workload.input_len)
        return repeat(replace(one, asked_output=workload.output_len), number=number)


def measured(bench, launches=1):
    found = PhaseMeasurement("t", WHOLE)
    for _ in range(launches):
        found.take(bench, repeats=3, allowed_failures=0)
    return found


def test_every_launch_takes_the_whole_and_each_phase():
    bench = Bench()
    found = measured(bench, launches=2)
    assert [shape for *shape, _ in bench.taken[:5]] == [
        ["whole", 512, 256], ["prefill", 512, 1], ["decode", 1, 256], ["half prefill", 256, 1],
        ["half output", 512, 128],
    ]  # fmt: skip
    assert len(bench.taken) == 10
    assert len({test for *_, test in bench.taken[:5]}) == 5  # prompts of their own
    assert len(found.launches) == len(found.phases) == 2


def test_what_a_token_of_either_phase_costs():
    found = measured(Bench())
    summaries = found.summaries()
    # Alone, a prefill has its one output token in it, and a decode its one prompt token.
    assert summaries["prefill_jpt"].value == pytest.approx(PREFILL + DECODE / 512, rel=0.01)
    assert summaries["decode_jpt"].value == pytest.approx(DECODE + PREFILL / 256, rel=0.01)
    assert summaries["jpt"].value == pytest.approx(DECODE + 2 * PREFILL, rel=0.01)
    (phases,) = found.record()["phases"]
    assert phases["regression"]["prefill_jpt"] == pytest.approx(PREFILL, rel=0.1)
    assert phases["regression"]["decode_jpt"] == pytest.approx(DECODE, rel=0.01)
    assert [(w["input_len"], w["output_len"]) for w in phases["windows"]] == [
        (512, 256), (512, 1), (1, 256), (256, 1), (512, 128),
    ]  # fmt: skip


def test_two_ways_that_disagree_are_said():
    assert any("decode_jpt is" in warning for warning in measured(Bench(dearer=2.0)).warnings)
    assert not any("decode_jpt is" in warning for warning in measured(Bench()).warnings)


def test_a_phase_that_cannot_be_trusted_makes_it_all_invalid():
    assert measured(Bench(invalid=("decode",))).invalid == "decode: no"
    assert "decode: seen decode" in measured(Bench()).warnings


def test_without_a_board_there_is_one_reason():
    found = measured(Bench(boards=False))
    assert found.summaries()["prefill_jpt"].reason == "the engine runs on no GPU that can be read from here"
    (phases,) = found.record()["phases"]
    assert (phases["windows"], phases["regression"]) == ([], None)
    assert phases["reason"] == "the engine runs on no GPU that can be read from here"


def test_both_phases_are_gated_beside_what_is_gated_anyway():
    gated = PhaseMeasurement("t", WHOLE).gated({"tpot": 0.05, "decode_jpt": 0.03})
    assert gated == {"tpot": 0.05, "decode_jpt": 0.03, "prefill_jpt": 0.10}


def test_it_is_other_work_than_the_workload_alone():
    assert PhaseMeasurement("t", WHOLE).digest != WHOLE.digest
    assert PhaseMeasurement("t", WHOLE).digest == PhaseMeasurement("u", WHOLE).digest
    assert PhaseMeasurement("t", WHOLE).digest != PhaseMeasurement("t", WHOLE.replace(batch=2)).digest


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (Workload(512, 1), "512 \\+ 1 tokens cannot be told apart"),
        (Workload(1, 256), "1 \\+ 256 tokens cannot be told apart"),
        (Workload(Distribution("uniform", (1, 512)), 256), "requests of one length"),
    ],
)
def test_lengths_that_cannot_be_taken_apart(workload, reason):
    with pytest.raises(WorkloadError, match=reason):
        PhaseMeasurement("t", workload)
