"""One seed is one run: what a simulated engine measures does not hang on when, where or after what it was measured."""

import json
import shutil
from pathlib import Path

import pytest

from .quick import QUICK

SUITES = Path(__file__).parents[2] / "suites"
NOISY = "sim:h200,seed=3,launch_noise=0.005,repeat_noise=0.003"
SUITE = """
import pytest
from pytest_llmperf import Workload

SLO = {"ttft": 0.5, "tpot": 0.05, "itl": 0.1}

@pytest.mark.parametrize("batch", [1, 4])
def test_batch(llmperf, batch):
    llmperf.measure(Workload(128, 32, batch=batch))

def test_prefill(llmperf):
    llmperf.measure(Workload(512, 1))

def test_phases(llmperf):
    llmperf.check_phases(Workload(64, 32, batch=2))

def test_open_loop(llmperf):
    lengths = {"lognormal": [64, 0.5, 4, 256]}
    llmperf.measure(Workload(lengths, lengths, rate=20, requests=40, slo=SLO))

def test_closed_loop(llmperf):
    llmperf.measure(Workload({"uniform": [16, 64]}, 32, concurrency=4, requests=16))
"""


@pytest.fixture
def tests_of(pytester):
    """Runs files in a folder of their own and returns what results.json says of the tests."""

    def run(folder, *arguments, engine=NOISY, files=None, method="runpytest_inprocess"):
        there = pytester.path / folder
        if files is None:
            there.mkdir(exist_ok=True)
            (there / "test_suite.py").write_text(SUITE)
        else:
            shutil.copytree(files, there, dirs_exist_ok=True)
        (there / "pytest.ini").write_text("[pytest]\nmarkers = sweep\n")
        report = there / f"report-{len(list(there.glob('report-*')))}"
        getattr(pytester, method)(
            f"--rootdir={there}", f"-c{there / 'pytest.ini'}", "-pno:cacheprovider", f"--llmperf-report={report}",
            f"--llmperf-engine={engine}", *QUICK[method], *(arguments or [str(there)]),
        )  # fmt: skip
        return json.loads((report / "results.json").read_text())["tests"]

    return run


def by_id(tests):
    return {test["nodeid"]: test for test in tests}


def test_two_runs_of_one_seed_are_equal_wherever_they_lie(tests_of):
    first, second = tests_of("here"), tests_of("elsewhere")
    assert len(first) == 6
    assert first == second


def test_another_seed_is_another_run(tests_of):
    first = by_id(tests_of("here"))
    second = by_id(tests_of("here", engine=NOISY.replace("seed=3", "seed=4")))
    for nodeid, test in first.items():
        assert second[nodeid]["metrics"]["e2e_latency"]["value"] != test["metrics"]["e2e_latency"]["value"]


def test_a_test_alone_is_what_it_is_among_others(tests_of, pytester):
    together = by_id(tests_of("here"))
    for name in ("test_open_loop", "test_phases"):
        (alone,) = tests_of("here", f"{pytester.path}/here/test_suite.py::{name}")
        assert alone == together[alone["nodeid"]]


def test_workers_of_xdist_measure_the_same(tests_of, pytester):
    pytest.importorskip("xdist")
    here = str(pytester.path / "here")
    plain = tests_of("here")
    for _ in range(2):
        shared = tests_of("here", "-n2", here, method="runpytest_subprocess")
        assert [test["nodeid"] for test in shared] == sorted(test["nodeid"] for test in plain)
        assert by_id(shared) == by_id(plain)


def test_the_shipped_suites_are_equal_in_two_runs(tests_of):
    first, second = (tests_of(folder, files=SUITES) for folder in ("here", "elsewhere"))
    assert len(first) > 10
    assert first == second
