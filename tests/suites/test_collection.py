"""What is in the suites: few tests by default, on one engine; all others are sweeps; each file says what it asks."""

import ast
import json
import sys
from pathlib import Path

import pytest

from pytest_llmperf.plugin.keys import STATE

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "suites").glob("test_*.py"))
QUESTIONS = [
    "test_batch_and_clock", "test_batching_policies", "test_hardware", "test_idle", "test_latency_throughput",
    "test_lengths", "test_phases", "test_quantization", "test_scaling", "test_serving", "test_sweet_spot",
]  # fmt: skip
#: Tests whose baselines are stored, and by whose names people know them.
DEFAULT = {
    "test_phases.py": ["test_prefill[8]", "test_decode[1]", "test_decode[16]", "test_end_to_end[1]",
                       "test_end_to_end[16]", "test_token[16]"],
    "test_batch_and_clock.py": ["test_batch[64]"],
    "test_idle.py": ["test_floor"],
    "test_latency_throughput.py": ["test_concurrency[16]"],
    "test_hardware.py": ["test_peaks"],
    "test_serving.py": ["test_open_loop", "test_highest_rate"],
}  # fmt: skip


class Collected:
    """A plugin that keeps what a session has collected."""

    def __init__(self):
        self.items = []

    def pytest_collection_finish(self, session):
        self.items = [(item.path.name, item.name, item, item.stash.get(STATE, None)) for item in session.items]


@pytest.fixture
def collect(monkeypatch):
    """``collect(*arguments)``: the tests of the suites, without running any."""

    def collect(*arguments, engine="sim:v100", base=("suites",)):
        collected = Collected()
        chosen = [f"--llmperf-engine={engine}"] if engine else []
        quiet = ["--collect-only", "-q", "-p", "no:cacheprovider"]
        pytest.main([*base, *quiet, *chosen, *arguments], plugins=[collected])
        return collected.items

    monkeypatch.chdir(ROOT)
    yield collect
    # Other tests of this process collect files of the same names elsewhere.
    for path in (ROOT / "suites").glob("*.py"):
        sys.modules.pop(path.stem, None)


def clocks(items, test="test_clock"):
    return sorted({item.callspec.params["gpu_clock"] for _, name, item, _ in items if name.startswith(f"{test}[")})


def test_every_question_has_its_file():
    assert [path.stem for path in FILES] == QUESTIONS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_file_says_what_it_asks_how_with_which_options_and_what_was_found(path):
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text.partition("\n")[0].endswith("?")
    assert "Options:" in text
    assert "Found" in text or "Published" in text


def test_by_default_there_are_twelve_tests_on_one_engine(collect):
    items = collect()
    found = {}
    for file, name, _, _ in items:
        found.setdefault(file, []).append(name)
    assert {file: sorted(names) for file, names in found.items()} == {f: sorted(n) for f, n in DEFAULT.items()}
    assert len(items) == 12
    assert len({state.spec.key for *_, state in items}) == 1
    assert all(item.get_closest_marker("sweep") is None for _, _, item, _ in items)


def test_the_sweeps_are_all_others_and_each_has_the_marker(collect):
    everything, sweeps = collect("-m", "sweep or not sweep"), collect("-m", "sweep")
    assert len(everything) == len(sweeps) + 12
    assert all(item.get_closest_marker("sweep") is not None for _, _, item, _ in sweeps)
    for file in QUESTIONS:
        assert any(f"{file}.py" == name for name, *_ in everything), file


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--deselect", "suites/test_idle.py::test_floor"], 11),
        (["--deselect=suites/test_idle.py::test_floor", "-o", "addopts=-rs", "--llmperf-report=a::b"], 11),
        (["--ignore-glob", "*::*"], 12),
    ],
)
def test_only_what_selects_tests_asks_for_sweeps(collect, arguments, expected):
    items = collect(*arguments)
    assert len(items) == expected
    assert all(item.get_closest_marker("sweep") is None for _, _, item, _ in items)


def test_a_name_asks_for_its_own_sweep_alone(collect, monkeypatch):
    named = ["suites/test_idle.py::test_floor_at_clock[900]", "suites/test_batch_and_clock.py::test_at_clock"]
    sweeps = [(file, name) for file, name, item, _ in collect(*named) if item.get_closest_marker("sweep")]
    assert ("test_idle.py", "test_floor_at_clock[900]") in sweeps
    assert len([name for file, name in sweeps if file == "test_idle.py"]) == 1
    assert len(sweeps) > 10
    assert {file for file, _ in sweeps} == {"test_idle.py", "test_batch_and_clock.py"}
    monkeypatch.chdir(ROOT / "suites")
    found = collect("test_idle.py::test_floor_at_clock", base=())
    assert found
    assert {name.partition("[")[0] for _, name, *_ in found} == {"test_floor_at_clock"}


def test_names_say_what_differs(collect):
    names = [(file, name) for file, name, *_ in collect("-m", "sweep or not sweep")]
    assert len(set(names)) == len(names)


def test_stored_baselines_are_of_tests_that_there_are(collect):
    tests = {f"suites/{file}::{name}" for file, name, *_ in collect("-m", "sweep or not sweep")}
    stored = {json.loads(path.read_text())["test"] for path in (ROOT / "baselines").rglob("*.json")}
    assert stored
    assert stored <= tests


@pytest.mark.parametrize("engine", ["sim:v100", "sim:a100", "sim:h100", "sim:h200", None])
def test_the_clocks_are_those_that_the_boards_have(collect, engine):
    found = clocks(collect("-m", "sweep", engine=engine))
    assert found == list(range(750, 1301, 50))


def test_without_a_gpu_what_is_about_clocks_is_skipped_and_not_an_error(run_suites):
    locked = ("test_batch_and_clock.py::test_at_clock[900-1]", "test_idle.py::test_floor_at_clock[900]",
              "test_sweet_spot.py::test_clock[900-decode]")  # fmt: skip
    # A server elsewhere, which nobody has to ask.
    run = run_suites("--llmperf-engine=http://203.0.113.1:8000", *(f"suites/{test}" for test in locked))
    assert "3 skipped" in run.text
    assert run.text.count("there is no GPU whose power could be read") == 3
