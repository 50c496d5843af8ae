from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.errors import OptionError
from pytest_llmperf.options import (
    DEFAULT_OUTPUTS_TOLERANCE,
    DEFAULT_TOLERANCE,
    GATED,
    OTHER_TOLERANCE,
    MarkerOptions,
    SessionOptions,
    budgets,
    outputs_tolerances,
    parse_tolerance,
    tolerances,
)


def marked(*marks):
    """A test with these markers, the closest first."""
    return SimpleNamespace(nodeid="test_x.py::test_y", iter_markers=lambda name: iter(marks))


def mark(*args, **kwargs):
    return pytest.mark.llmperf(*args, **kwargs).mark


@pytest.fixture
def session(pytester, monkeypatch):
    monkeypatch.delenv("CI", raising=False)

    def parse(*arguments, **ini):
        lines = "".join(f"{name} = {value}\n" for name, value in ini.items())
        pytester.makeini(f"[pytest]\n{lines}")
        return SessionOptions.from_config(pytester.parseconfig(*arguments))

    return parse


class TestTolerance:
    @pytest.mark.parametrize(
        ("given", "number"),
        [
            ("3%", 0.03),
            (" 3 % ", 0.03),
            ("0.03", 0.03),
            (0.03, 0.03),
            ("0", 0),
            (0, 0),
            ("250%", 2.5),
            ("1e-3", 1e-3),
        ],
    )
    def test_it_is_a_percentage_or_a_fraction(self, given, number):
        assert parse_tolerance(given, "here") == pytest.approx(number)

    @pytest.mark.parametrize("given", [3, "3", 1.0, "50"])
    def test_a_percentage_without_its_sign_is_refused(self, given):
        with pytest.raises(OptionError, match=r"^here: .* would be \d+%\. Write '\d+%', or 0\.\d+"):
            parse_tolerance(given, "here")

    @pytest.mark.parametrize(
        "given", ["", "%", "three", "3%%", "%3", "3 %x", "-1%", -0.1, "nan", "nan%", "inf", float("nan"), float("inf"),
                  True, None, [], {}, pytest.param(10**400, id="huge")],
    )  # fmt: skip
    def test_anything_else_is_refused_with_the_place(self, given):
        with pytest.raises(OptionError, match=r"^here: a tolerance is like '3%' or 0.03, not "):
            parse_tolerance(given, "here")

    @given(st.floats(0, 0.999))
    def test_what_was_printed_is_read_again(self, number):
        assert parse_tolerance(repr(number), "here") == number
        assert parse_tolerance(f"{number * 100!r}%", "here") == pytest.approx(number)


class TestMarker:
    def test_without_a_marker_nothing_is_asked_for(self):
        assert MarkerOptions.from_node(marked()) == MarkerOptions()
        assert MarkerOptions.from_node(marked(mark())) == MarkerOptions()

    def test_its_arguments_are_read(self):
        options = MarkerOptions.from_node(
            marked(mark(tolerance={"tpot": "3%"}, model="tiny-llama", engine={"dtype": "float16"}))
        )
        assert options == MarkerOptions({"tpot": 0.03}, "tiny-llama", {"dtype": "float16"})

    def test_one_tolerance_is_for_all_metrics(self):
        assert MarkerOptions.from_node(marked(mark(tolerance="50%"))).tolerance == {"*": 0.5}

    def test_the_closest_marker_wins_argument_by_argument(self):
        options = MarkerOptions.from_node(
            marked(
                mark(tolerance={"tpot": 0.01}, engine={"a": 1}),
                mark(tolerance={"tpot": 0.02, "ttft": 0.02}, model="near", engine={"a": 2, "b": 2}),
                mark(tolerance={"mbu": 0.03}, model="far", engine={"c": 3}),
            )
        )
        assert options.tolerance == {"tpot": 0.01, "ttft": 0.02, "mbu": 0.03}
        assert (options.model, options.engine) == ("near", {"a": 1, "b": 2, "c": 3})

    def test_a_closer_tolerance_for_all_replaces_those_farther_away(self):
        options = MarkerOptions.from_node(marked(mark(tolerance="50%"), mark(tolerance={"tpot": "1%"})))
        assert options.tolerance == {"*": 0.5}

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (mark("mistral-7b"), "named arguments only, not 'mistral-7b'"),
            (mark(tolerence=0.1), r"no argument 'tolerence'.*tolerance, model, engine"),
            (mark(tolerance={"tpot": "soon"}), "tolerance of tpot"),
            (mark(tolerance=["3%"]), "a tolerance is like"),
            (mark(model=7), "model is a name or a path"),
            (mark(engine="vllm"), "engine is a mapping"),
            (mark(engine={1: 2}), "engine is a mapping"),
        ],
    )
    def test_a_wrong_argument_is_refused_with_the_test(self, given, message):
        with pytest.raises(OptionError, match=message) as refused:
            MarkerOptions.from_node(marked(given))
        assert "test_x.py::test_y" in str(refused.value)

    def test_every_unknown_argument_is_listed(self):
        with pytest.raises(OptionError, match=r"no arguments 'metrics', 'tolerence'"):
            MarkerOptions.from_node(marked(mark(tolerence=0.1, metrics=[])))


class TestMerging:
    @pytest.mark.parametrize(
        ("ini", "marker", "expected"),
        [
            ({}, {}, dict(DEFAULT_TOLERANCE)),
            ({"tpot": 0.2}, {}, {**DEFAULT_TOLERANCE, "tpot": 0.2}),
            ({"tpot": 0.2}, {"tpot": 0.3}, {**DEFAULT_TOLERANCE, "tpot": 0.3}),
            ({"*": 0.2}, {}, dict.fromkeys(GATED, 0.2)),
            ({"*": 0.2}, {"tpot": 0.3}, {**dict.fromkeys(GATED, 0.2), "tpot": 0.3}),
            ({"*": 0.2, "tpot": 0.1}, {}, {**dict.fromkeys(GATED, 0.2), "tpot": 0.1}),
            ({"tpot": 0.2}, {"*": 0.3}, dict.fromkeys(GATED, 0.3)),
            ({"throughput": 0.2}, {}, {**DEFAULT_TOLERANCE, "throughput": 0.2}),
            ({}, {"throughput": 0.2}, {**DEFAULT_TOLERANCE, "throughput": 0.2}),
            ({"*": 0.3}, {"throughput": 0.2}, {**dict.fromkeys(GATED, 0.3), "throughput": 0.2}),
            ({"throughput": 0.1}, {"*": 0.2}, {**dict.fromkeys(GATED, 0.2), "throughput": 0.2}),
        ],
    )
    def test_the_marker_goes_over_the_ini_file_and_that_over_the_defaults(self, session, ini, marker, expected):
        lines = "\n".join(f"    {name}: {value}" if name != "*" else f"    {value}" for name, value in ini.items())
        options = session(llmperf_tolerance=f"\n{lines}")
        assert options.tolerance == ini
        assert tolerances(options, MarkerOptions(tolerance=marker)) == expected

    def test_every_gated_metric_has_a_default(self):
        assert set(GATED) == set(DEFAULT_TOLERANCE)
        assert OTHER_TOLERANCE > 0


class TestSession:
    def test_the_defaults(self, session, pytester):
        options = session()
        assert (options.engine, options.model, options.save, options.inconclusive) == ("auto", None, False, "fail")
        assert (options.launches, options.measure_launches, options.repeats, options.allowed_failures) == (8, 1, 3, 0)
        assert (options.read_timeout, options.connect_timeout) == (120, 30)
        assert options.baselines == pytester.path / "baselines"
        assert options.report is None

    def test_saving_takes_more_launches_unless_told_otherwise(self, session):
        assert session("--llmperf-save").launches == 5
        assert session("--llmperf-save", "--llmperf-launches=2").launches == 2

    def test_a_number_of_launches_holds_for_what_is_measured_only_as_well(self, session):
        assert session("--llmperf-launches=3").measure_launches == session("--llmperf-launches=3").launches == 3

    @pytest.mark.parametrize(
        ("option", "ini", "name"),
        [("--llmperf-engine", "llmperf_engine", "engine"), ("--llmperf-model", "llmperf_model", "model")],
    )
    def test_the_command_line_wins_over_the_ini_file(self, session, option, ini, name):
        assert getattr(session(**{ini: "sim:a100"}), name) == "sim:a100"
        assert getattr(session(f"{option}=sim:v100", **{ini: "sim:a100"}), name) == "sim:v100"

    def test_folders_are_relative_to_where_they_were_written(self, session, pytester):
        ini = {"llmperf_baselines": "stored"}
        assert session(**ini).baselines == pytester.path / "stored"
        pytester.mkdir("below")
        root = f"--rootdir={pytester.path}"
        config = f"-c={pytester.path / 'tox.ini'}"
        pytester.chdir()
        options = session("--llmperf-baselines=mine", "--llmperf-report=out", root, config, **ini)
        assert options.baselines == pytester.path / "mine"
        assert options.report == pytester.path / "out"

    @pytest.mark.parametrize(
        ("argument", "named"),
        [
            ("--llmperf-launches=0", "--llmperf-launches is a whole number of at least 1, not 0"),
            ("--llmperf-launches=-1", "--llmperf-launches"),
            ("--llmperf-repeats=0", "--llmperf-repeats is a whole number of at least 1, not 0"),
        ],
    )
    def test_a_count_below_one_is_refused_by_name(self, session, argument, named):
        with pytest.raises(OptionError, match=named):
            session(argument)

    @pytest.mark.parametrize("name", ["llmperf_read_timeout", "llmperf_connect_timeout"])
    @pytest.mark.parametrize("value", ["0", "-1", "soon", "nan", "inf"])
    def test_a_timeout_that_is_none_is_refused_by_name(self, session, name, value):
        with pytest.raises(OptionError, match=f"{name} in the ini file is a number above 0, not '{value}'"):
            session(**{name: value})

    @pytest.mark.parametrize("value", ["-1", "0.5", "some", "nan"])
    def test_failures_are_allowed_by_whole_numbers(self, session, value):
        with pytest.raises(OptionError, match=f"llmperf_allowed_failures .* whole number .*'{value}'"):
            session(llmperf_allowed_failures=value)

    @pytest.mark.parametrize("name", ["llmperf_read_timeout", "llmperf_connect_timeout"])
    @pytest.mark.parametrize("value", ["1e300", "1000001", "1e18"])
    def test_timeouts_that_no_clock_can_hold(self, session, name, value):
        with pytest.raises(OptionError, match=f"{name} in the ini file is at most 1000000, not '{value}'"):
            session(**{name: value})

    def test_numbers_of_the_ini_file_are_read(self, session):
        options = session(llmperf_read_timeout="0.5", llmperf_connect_timeout="7", llmperf_allowed_failures="2")
        assert (options.read_timeout, options.connect_timeout, options.allowed_failures) == (0.5, 7, 2)

    @pytest.mark.parametrize("line", ["tpot: soon", "tpot:", "a lot", "tpot 3%"])
    def test_a_tolerance_of_the_ini_file_that_is_none_is_refused(self, session, line):
        with pytest.raises(OptionError, match="llmperf_tolerance in the ini file"):
            session(llmperf_tolerance=line)

    @pytest.mark.parametrize(
        ("value", "in_ci"),
        [("true", True), ("1", True), ("woodpecker", True), ("", False), ("0", False), ("False", False)],
    )
    def test_ci_is_known_by_its_variable(self, session, monkeypatch, value, in_ci):
        monkeypatch.setenv("CI", value)
        assert session().in_ci is in_ci


class TestBudget:
    def test_it_is_twice_the_tolerance_unless_the_ini_file_says_otherwise(self, session):
        tolerated = {"tpot": 0.03, "tpj": 0.05}
        assert budgets(session(), tolerated) == {"tpot": 0.06, "tpj": 0.1}
        assert budgets(session(llmperf_budget="tpot: 4%"), tolerated) == {"tpot": 0.04, "tpj": 0.1}
        assert budgets(session(llmperf_budget="7%"), tolerated) == {"tpot": 0.07, "tpj": 0.07}
        assert budgets(session(llmperf_budget="7%\n  tpj: 0"), tolerated) == {"tpot": 0.07, "tpj": 0}

    def test_what_is_none_is_refused_with_the_option(self, session):
        with pytest.raises(OptionError, match=r"^llmperf_budget in the ini file: .*"):
            session(llmperf_budget="tpot: much")


class TestBaselineMaxAge:
    def test_it_is_in_days(self, session):
        assert session().baseline_max_age == 90
        assert session(llmperf_baseline_max_age="7").baseline_max_age == 7
        assert session(llmperf_baseline_max_age="0").baseline_max_age == 0

    @pytest.mark.parametrize("given", ["-1", "1.5", "nan", "inf", "a week"])
    def test_anything_else_is_refused(self, session, given):
        with pytest.raises(OptionError, match=r"^llmperf_baseline_max_age in the ini file is a whole number"):
            session(llmperf_baseline_max_age=given)


class TestOutputs:
    @pytest.mark.parametrize(
        ("ini", "marks", "expected"),
        [
            ((), [], {}),
            (("token_agreement: 30%",), [], {"token_agreement": 0.3}),
            (("token_agreement: 100%", " logprob_difference : 0.2 nat"), [],
             {"token_agreement": 1.0, "logprob_difference": 0.2}),
            (("logprob_difference: 0.2",), [mark(outputs={"logprob_difference": 1})], {"logprob_difference": 1.0}),
            (("token_agreement: 30%",), [mark(outputs={"logprob_difference": "3"})],
             {"token_agreement": 0.3, "logprob_difference": 3.0}),
            ((), [mark(outputs=False)], None),
            ((), [mark(outputs=True), mark(outputs=False)], {}),
            ((), [mark(outputs=False), mark(outputs={"token_agreement": 0})], None),
            ((), [mark(outputs={"token_agreement": 0}), mark(outputs=False)], {"token_agreement": 0}),
            ((), [mark(tolerance="3%"), mark(outputs={"token_agreement": "5%"})], {"token_agreement": 0.05}),
        ],
    )  # fmt: skip
    def test_the_marker_goes_over_the_ini_file_and_that_over_the_defaults(self, session, ini, marks, expected):
        options = session(**({"llmperf_outputs_tolerance": "".join(f"\n    {line}" for line in ini)} if ini else {}))
        found = outputs_tolerances(options, MarkerOptions.from_node(marked(*marks)))
        assert found == (None if expected is None else {**DEFAULT_OUTPUTS_TOLERANCE, **expected})

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"tpot": "3%"}, "'tpot' of outputs, which does not exist.*token_agreement, logprob_difference"),
            ({"token_agreement": "150%"}, "more than all tokens cannot differ"),
            ({"token_agreement": 3}, "would be 300%"),
            ({"token_agreement": -0.1}, "a tolerance is like"),
            ({"logprob_difference": "5%"}, "is in nat, like 0.1, and cannot be '5%'"),
            ({"logprob_difference": -1}, "is in nat"),
            ({"logprob_difference": "nan"}, "is in nat"),
            ({"logprob_difference": True}, "is in nat"),
            ({"logprob_difference": 10**400}, "is in nat"),
            ("10%", "outputs is False, or a mapping of tolerances, not '10%'"),
        ],
    )
    def test_what_is_no_tolerance_is_refused_with_the_test(self, given, message):
        with pytest.raises(OptionError, match=message) as refused:
            MarkerOptions.from_node(marked(mark(outputs=given)))
        assert "test_x.py::test_y" in str(refused.value)

    @pytest.mark.parametrize("line", ["10%", "tpot: 3%", "token_agreement", "logprob_difference: x"])
    def test_a_line_of_the_ini_file_that_is_none_is_refused(self, session, line):
        with pytest.raises(OptionError, match="llmperf_outputs_tolerance in the ini file"):
            session(llmperf_outputs_tolerance=line)
