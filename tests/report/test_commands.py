"""The command that would store what a run has measured."""

import shlex

import pytest

from pytest_llmperf.report.commands import command_lines, item_of, saving


@pytest.mark.parametrize(
    ("command", "saved"),
    [
        ("pytest", "pytest --llmperf-save"),
        (None, "pytest --llmperf-save"),
        ("pytest 'unbalanced", "pytest --llmperf-save"),
        ("pytest suites --gpu-clock 900 -m sweep", "pytest suites --gpu-clock 900 -m sweep --llmperf-save"),
        ("pytest s --llmperf-report=r --junitxml j.xml -x -n 2", "pytest s --llmperf-save"),
        ("pytest s --llmperf-launches 1 --llmperf-repeats 5", "pytest s --llmperf-repeats 5 --llmperf-save"),
        ("pytest --llmperf-save", "pytest --llmperf-save"),
        (
            "pytest 'a.py::t[x y]' --llmperf-engine=vllm,enforce_eager=true",
            "pytest 'a.py::t[x y]' --llmperf-engine=vllm,enforce_eager=true --llmperf-save",
        ),
    ],
)
def test_it_measures_the_same(command, saved):
    assert saving(command) == saved


def test_some_tests_take_the_place_of_the_paths():
    command = "pytest suites other.py -k suites --llmperf-model m"
    assert saving(command, ["a.py::t[1]"]) == "pytest 'a.py::t[1]' -k suites --llmperf-model=m --llmperf-save"


def test_where_an_option_is_not_known_its_value_is_not_taken_for_a_path():
    assert saving("pytest --mine value s", ["a.py::t"]) == "pytest --mine value s --llmperf-save"


@pytest.mark.parametrize(
    ("nodeid", "item"),
    [
        ("a.py::t", "a.py::t"),
        ("a.py::t#x", "a.py::t"),
        ("a.py::t[1]#x", "a.py::t[1]"),
        ("a.py::t[a#b]", "a.py::t[a#b]"),
    ],
)
def test_a_named_measurement_belongs_to_its_test(nodeid, item):
    assert item_of(nodeid) == item


@pytest.mark.parametrize("width", range(54, 80))
def test_a_long_command_is_several_lines_that_a_shell_takes_as_one(width):
    words = ["pytest", "suites/test_x.py::test_y[a b]", "-m", "not sweep", "--llmperf-engine=vllm,max_model_len=4096"]
    lines = command_lines(shlex.join(words), width)
    assert len(lines) > 1
    assert all(len(line) <= width for line in lines)
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert shlex.split("".join(line.removesuffix("\\") for line in lines)) == words


def test_a_short_command_is_one_line():
    assert command_lines("pytest suites --llmperf-save", 80) == ["    pytest suites --llmperf-save"]
