"""What a session records of the boards over time and of the roof over each test; and that older files do without."""

import json

import pytest

from pytest_llmperf.results import Results

SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("gpu_clock", [750, 1200], indirect=True)
def test_swept(llmperf, gpu_clock):
    llmperf.measure(Workload(64, 32, batch=4))

def test_loop(llmperf):
    llmperf.measure(Workload(64, 32, concurrency=2, requests=8))
"""


@pytest.fixture
def run(pytester, fake_nvml, monkeypatch, tmp_path):
    """The results of a suite on a simulated engine."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def run(text, engine="sim:v100", launches=1):
        pytester.makepyfile(test_suite=text)
        outcome = pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", f"--llmperf-engine={engine}", "--llmperf-report=report",
            f"--llmperf-launches={launches}",
        )  # fmt: skip
        assert outcome.ret == 0
        return json.loads((pytester.path / "report" / "results.json").read_text())

    return run


def by_name(found):
    return {record["nodeid"].partition("::")[2]: record for record in found["tests"]}


def test_the_roof_of_each_test_is_the_one_at_its_clock(run):
    found = run(SUITE)
    tests = by_name(found)
    slow, fast, free = (tests[name]["roof"] for name in ("test_swept[750]", "test_swept[1200]", "test_loop"))
    assert [slow["copy_bandwidth"], fast["copy_bandwidth"], free["copy_bandwidth"]] == pytest.approx(
        [722e9 * 750 / 900, 722e9, 722e9]
    )
    assert [slow["peak_flops"], fast["peak_flops"], free["peak_flops"]] == pytest.approx(
        [125e12 * mhz / 1530 for mhz in (750, 1200, 1530)]
    )
    assert slow["peak_bandwidth"] == fast["peak_bandwidth"] == free["peak_bandwidth"] == 900e9
    (peaks,) = found["environment"]["peaks"]
    assert peaks["device"] == "Tesla V100-SXM2-32GB"
    assert "simulated" in peaks["method"]
    assert "at 1530 MHz" in peaks["method"]  # of the session, whose clock is free, and not of the sweep's first test
    assert peaks["copy_bandwidth"] == pytest.approx(722e9)


def test_bytes_over_time_are_the_mbu_beside_them(run):
    for record in by_name(run(SUITE, launches=2)).values():
        roof = record["roof"]
        (decode,) = (point for point in roof["points"] if point["phase"] == "decode")
        share = (decode["weight_bytes"] + decode["kv_bytes"]) / decode["seconds"] / roof["peak_bandwidth"]
        assert share == pytest.approx(record["metrics"]["mbu"]["value"], rel=1e-6)
        assert [p["phase"] for p in roof["points"]] == (
            ["decode"] if "loop" in record["nodeid"] else ["prefill", "decode"]
        )


def test_the_timeline_is_of_the_last_launch_and_adds_up_to_its_energy(run):
    for record in by_name(run(SUITE, engine="sim:h200", launches=2)).values():
        timeline = record["timeline"]
        assert timeline["launch"] == 1
        edges = [*timeline["seconds"], timeline["end"]]
        energy = record["energy"][-1]
        joules = sum(
            watts * (end - start)
            for watts, start, end in zip(timeline["power"], edges[:-1], edges[1:], strict=True)
            if start >= 0 and end <= energy["seconds"] + 0.01
        )
        assert joules == pytest.approx(energy["joules"], rel=0.1)  # its sensor is late by up to a tenth of a second
        last = timeline["phases"][-1]
        assert last["end"] == pytest.approx(energy["seconds"], abs=1e-3)
        assert {p["phase"] for p in timeline["phases"]} == (
            {"load"} if "loop" in record["nodeid"] else {"prefill", "decode"}
        )
        assert max(timeline["sm_activity"]) > 0.9
        locked = record["clock"]["locked_mhz"]
        assert set(timeline["sm_clock"]) == {(locked or 1980) * 1e6}


def test_files_of_versions_that_kept_neither_are_still_read(run):
    found = run(SUITE)
    Results.model_validate(found)
    for record in found["tests"]:
        del record["roof"], record["timeline"]
    found["environment"]["peaks"] = []
    older = Results.model_validate(found)
    assert {(test.roof, test.timeline) for test in older.tests} == {(None, None)}


def test_what_a_first_version_of_them_did_not_have_is_no_reason_to_refuse_them(run):
    found = run(SUITE)
    for record in found["tests"]:
        for name in ("end", "capped_left_out", "reason"):
            del record["timeline"][name]
        for name in ("copy_bandwidth", "matmul_flops"):
            del record["roof"][name]
        for point in record["roof"]["points"]:
            del point["batch"]
    first = Results.model_validate(found).tests[0]
    assert (first.timeline.end, first.roof.copy_bandwidth) == (None, None)
