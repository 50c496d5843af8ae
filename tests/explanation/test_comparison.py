"""Two runs, or two machines, side by side."""

import json
import math
import statistics

import pytest

from pytest_llmperf.__main__ import main
from pytest_llmperf.explanation.comparison import BOUND_TO_BOARD, compare_runs
from pytest_llmperf.explanation.statistics import ratio_interval
from pytest_llmperf.metrics import REGISTRY
from pytest_llmperf.results import Results

from .records import document, metric, results, run


def measured(*tpot, tpj=(2.0, 2.01), nodeid="s.py::test", **more):
    metrics = {"tpot": metric("tpot", *tpot), "tpj": metric("tpj", *tpj)}
    return document({}, more.pop("now", None), kind="measured", nodeid=nodeid, metrics=metrics, **more)


A = measured(0.00470, 0.00471, 0.00469)
SLOWER = measured(0.00500, 0.00501, 0.00502)


def compared(a, b, **more):
    return compare_runs(results(a), results(b, **more)).tests[0]


def figures(test):
    return {one.name: one for one in test.metrics}


def test_values_changes_and_intervals():
    tpot = figures(compared(A, SLOWER))["tpot"]
    assert tpot.change == pytest.approx(tpot.now / tpot.before - 1)
    assert tpot.interval[0] < tpot.change < tpot.interval[1]
    assert tpot.outside_noise == "worse"
    assert figures(compared(SLOWER, A))["tpot"].outside_noise == "better"


def test_the_interval_is_students_on_the_log_scale():
    before, after = [[1.0], [1.1]], [[1.3], [1.2], [1.25]]
    low, high = ratio_interval(before, after)
    first, second = ([math.log(v[0]) for v in side] for side in (before, after))
    squares = sum((x - statistics.fmean(side)) ** 2 for side in (first, second) for x in side)
    reach = 3.182446305284263 * math.sqrt(squares / 3 * (1 / 2 + 1 / 3))  # t table: 97.5 %, 3 degrees of freedom
    change = statistics.fmean(second) - statistics.fmean(first)
    assert (low, high) == (pytest.approx(math.expm1(change - reach)), pytest.approx(math.expm1(change + reach)))


def test_one_launch_each_says_nothing_of_the_noise():
    tpot = figures(compared(measured(0.0047), measured(0.0060)))["tpot"]
    assert (tpot.interval, tpot.outside_noise) == (None, None)
    assert tpot.change == pytest.approx(0.2766, rel=1e-3)


def test_equal_launches_are_no_difference():
    assert figures(compared(A, A))["tpot"].outside_noise is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"engine": {**A["engine"], "device": "NVIDIA H100"}}, "device: NVIDIA H200 in A, NVIDIA H100 in B"),
        ({"engine": {**A["engine"], "dtype": "float16"}}, "dtype: bfloat16 in A, float16 in B"),
        ({"clock": {"locked_mhz": 1500}}, "SM clock: not locked in A, locked at 1500 MHz in B"),
        ({"workload": {"digest": "e"}}, "workload: d in A, e in B"),
        ({"invalid": "no clock"}, "the measurement in B is invalid: no clock"),
        ({"engine": None}, "nothing was measured in B"),
    ],
)
def test_what_is_not_comparable_has_figures_and_no_verdict(change, words):
    test = compared(A, {**SLOWER, **change})
    assert test.incomparable == (words,)
    assert figures(test)["tpot"].change is not None
    assert figures(test)["tpot"].outside_noise is None


def test_what_is_under_test_is_named_and_comparable():
    engine = {**A["engine"], "version": "0.12.0", "treatment": {"enforce_eager": True}}
    test = compared(A, {**SLOWER, "engine": engine})
    assert test.incomparable == ()
    assert test.differences == ("version: 0.11.0 in A, 0.12.0 in B", "enforce_eager=true (not given in A)")


def test_the_energy_of_other_boards_is_shown_with_its_caveat(tmp_path, capsys):
    test = compared(A, measured(0.00470, 0.00471, tpj=(1.5, 1.51)), gpus=("GPU-2",))
    assert figures(test)["tpj"].other_board
    assert figures(test)["tpj"].outside_noise is None
    assert not figures(test)["tpot"].other_board
    for name, gpus, tpj in (("a", ("GPU-1",), (2.0, 2.01)), ("b", ("GPU-2",), (1.5, 1.51))):
        (tmp_path / name).write_text(json.dumps(run(measured(0.0047, 0.00471, tpj=tpj), id=name, gpus=gpus)))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "boards: GPU-1 in A, GPU-2 in B" in out
    assert "* of other boards: two boards of one product differ by 8 to 12 % in energy." in out


def test_figures_of_boards_are_the_registrys():
    assert {name for name, one in REGISTRY.items() if one.bound_to_board} == BOUND_TO_BOARD


def test_conditions_that_moved_stand_beside(tmp_path, capsys):
    test = compared(A, measured(0.00500, 0.00501, now={"power_cap_share": 0.5, "memory_clock": 2.619e9}))
    assert [m.name for m in test.conditions] == ["memory_clock", "power_cap_share"]


def test_tests_of_one_run_only(tmp_path, capsys):
    (tmp_path / "a").write_text(json.dumps(run(A, measured(1.0, nodeid="s.py::gone"))))
    (tmp_path / "b").write_text(json.dumps(run(SLOWER, measured(1.0, nodeid="s.py::new"))))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "only in A: s.py::gone" in out
    assert "only in B: s.py::new" in out
    assert "  tpot                       4.700 ms   5.010 ms   +6.6 %  +6.1 to +7.1   worse" in out
    assert "Each interval stands for itself" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_runs_without_a_test_in_common_end_with_1(tmp_path, capsys):
    (tmp_path / "a").write_text(json.dumps(run(A)))
    (tmp_path / "b").write_text(json.dumps(run()))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "No test is in both runs." in capsys.readouterr().out


def test_a_metric_that_only_one_has_says_why():
    without = {**SLOWER, "metrics": {**SLOWER["metrics"], "tpj": metric("tpj", reason="no board")}}
    assert compared(A, without).only_one == (("tpj", "no value in B (no board)"),)


def test_for_scripts(tmp_path, capsys):
    (tmp_path / "a").write_text(json.dumps(run(A)))
    (tmp_path / "b").write_text(json.dumps(run(SLOWER)))
    assert main(["compare", "--json", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    (test,) = json.loads(capsys.readouterr().out)["tests"]
    assert test["metrics"][0]["outside_noise"] == "worse"


def hardware(copy, products):
    engine = {**A["engine"], "kind": "hardware", "model": "hardware", "dtype": "any"}
    metrics = {"copy_bandwidth": metric("copy_bandwidth", *copy), "matmul_flops": metric("matmul_flops", *products)}
    one = document({}, kind="measured", nodeid="s.py::test_hardware", metrics=metrics, engine=engine)
    return {**one, "workload": None, "requests": None}


def test_what_two_machines_reach_stands_side_by_side_in_80_columns(tmp_path, capsys):
    a, b = hardware((4.27e12, 4.28e12), (8.0e14, 8.1e14)), hardware((2.13e12, 2.14e12), (4.0e14, 4.1e14))
    test = compared(a, b)
    assert test.incomparable == ()
    assert figures(test)["copy_bandwidth"].outside_noise == "worse"
    assert not figures(test)["copy_bandwidth"].other_board
    for name, record in (("a", a), ("b", b)):
        (tmp_path / name).write_text(json.dumps(run(record, id=name)))
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = capsys.readouterr().out.splitlines()
    copy, products = (next(line for line in lines if name in line) for name in ("copy_bandwidth", "matmul_flops"))
    assert copy.split()[:7] == ["copy_bandwidth", "4.275", "TB/s", "2.135", "TB/s", "-50.1", "%"]
    assert products.split()[:6] == ["matmul_flops", "FLOP/s", "805.0", "T", "405.0", "T"]
    assert max(map(len, lines)) <= 80


def printed(tmp_path, capsys, a, b, **of_b):
    for name, documents, more in (("a", a, {}), ("b", b, of_b)):
        (tmp_path / name).write_text(json.dumps(run(*documents, id=name, **more)))
    main(["compare", str(tmp_path / "a"), str(tmp_path / "b")])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    return lines


def many(*changes, tpj=(2.0, 2.01), **more):
    return [
        measured(0.0047 * by, 0.00471 * by, 0.00469 * by, nodeid=f"s.py::test_{place}", tpj=tpj, **more)
        for place, by in enumerate(changes)
    ]


def test_what_changed_most_comes_first(tmp_path, capsys):
    lines = printed(tmp_path, capsys, many(1, 1, 1, 1), many(1.02, 1.1, 0.9, 1))
    place = lines.index("4 tests are in both. What changed most outside the noise, by metric:")
    assert place < next(place for place, line in enumerate(lines) if line.startswith("s.py::"))
    assert lines[place + 1].split() == ["tests", "worst", "best"]
    assert lines[place + 2].split() == ["tpot", "3", "+10.0", "%", "1", "-10.0", "%", "2"]
    assert lines[place + 3] == ""
    assert "As in A, every figure of 1 test: 3" in lines


def test_the_worst_of_a_metric_of_which_more_is_better_is_the_lowest(tmp_path, capsys):
    b = [*many(1, tpj=(1.8, 1.81)), {**many(1, tpj=(2.2, 2.21))[0], "nodeid": "s.py::test_1"}]
    lines = printed(tmp_path, capsys, many(1, 1), b)
    (tpj,) = (line for line in lines if line.startswith("  tpj   "))
    assert tpj.split() == ["tpj", "2", "-10.0", "%", "0", "+10.0", "%", "1"]


def test_where_nothing_changed_that_is_all_there_is_to_say(tmp_path, capsys):
    lines = printed(tmp_path, capsys, many(1, 1), many(1, 1))
    assert lines[-3:] == ["2 tests are in both. No figure changed.", "", "As in A, every figure of 2 tests: 0, 1"]


def test_one_launch_says_why_there_is_no_interval(tmp_path, capsys):
    lines = printed(tmp_path, capsys, [measured(0.0047, tpj=(2.0,))], [measured(0.0060, tpj=(1.9,))])
    (head,) = (line for line in lines if line.split()[:3] == ["A", "B", "change"])
    assert head.endswith("  no interval: 1 launch")
    lines = printed(tmp_path, capsys, [measured(0.0047)], [measured(0.0060, tpj=(1.9, 1.91))])
    (tpot,) = (line for line in lines if line.startswith("  tpot "))
    assert tpot.endswith("+27.7 %  1 launch")


def test_gaps_that_are_what_the_tpot_is_are_left_out(tmp_path, capsys):
    def gaps(tpot, itl):
        one = measured(tpot, tpot)
        return {**one, "metrics": {**one["metrics"], **{n: metric("tpot", itl, itl) for n in ("itl", "chunk_gap")}}}

    lines = printed(tmp_path, capsys, [gaps(0.0047, 0.0047)], [gaps(0.0050, 0.0050)])
    assert "  as tpot: itl, chunk_gap" in lines
    assert not any(line.startswith(("  itl", "  chunk_gap")) for line in lines)
    lines = printed(tmp_path, capsys, [gaps(0.0047, 0.0030)], [gaps(0.0050, 0.0032)])
    assert any(line.startswith("  itl ") for line in lines)
    assert "  as itl: chunk_gap" in lines


def test_other_metrics_carry_their_unit(tmp_path, capsys):
    lines = printed(tmp_path, capsys, many(1), many(1.1, tpj=(1.5, 1.51)))
    assert any(line.startswith("  tpj tokens/J ") for line in lines)


def test_boards_of_two_products_are_not_called_two_of_one(tmp_path, capsys):
    other = measured(0.0047, 0.00471, tpj=(1.5, 1.51), engine={**A["engine"], "device": "NVIDIA H100"})
    lines = printed(tmp_path, capsys, [A], [other], gpus=("GPU-2",))
    assert not any("two boards of one product" in line for line in lines)
    assert any(line.startswith("  tpj tokens/J ") for line in lines)


def test_what_is_the_same_of_all_tests_is_told_once(tmp_path, capsys):
    engine = {**A["engine"], "device": "NVIDIA H100", "version": "0.12.0"}
    lines = printed(tmp_path, capsys, many(1, 1), many(1.1, 1.1, engine=engine))
    text = " ".join(" ".join(lines).split())
    assert text.count("device: NVIDIA H200 in A, NVIDIA H100 in B") == 1
    assert text.count("version: 0.11.0 in A, 0.12.0 in B") == 1
    assert "2 tests are in both, 2 of them not comparable. What differs most outside the noise, by metric:" in text
    assert not any(line.endswith("worse") for line in lines)


def searched(rate, tpot):
    one = measured(tpot, tpot * 1.001)
    search = {"low": 1.0, "high": 64.0, "attainment": 0.9, "precision": 0.1, "seconds": 4.0, "trials": []}
    return {**one, "search": search, "metrics": {**one["metrics"], "max_rate": metric("max_rate", rate, rate)}}


def lines_of(a, b, capsys, tmp_path):
    for name, told in (("a", a), ("b", b)):
        (tmp_path / f"{name}.json").write_text(json.dumps(told))
    main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")])
    return capsys.readouterr().out


def simulated(test, **engine):
    return {**test, "engine": {**test["engine"], "simulated": True, "kind": "sim", "version": "sim:h200", **engine}}


def test_what_is_the_same_of_most_tests_is_told_once_and_only_the_rest_at_each(tmp_path, capsys):
    before = [{**A, "nodeid": f"s.py::t{n}"} for n in range(8)]
    now = [simulated(test) for test in before]
    now[3] = simulated(before[3], dtype="float16")
    now[5] = simulated(before[5], version="0.11.0")
    out = lines_of(run(*before), run(*now), capsys, tmp_path)
    assert "Not comparable, in all 8 tests: simulated: False in A, True in B\n" in out
    assert "Different, in all 8 tests: kind: vllm in A, sim in B\n" in out
    assert "Different, in 7 of 8 tests: version: 0.11.0 in A, sim:h200 in B\n" in out
    assert out.count("simulated: False") == out.count("kind: vllm") == 1
    assert "s.py::t3\n  Not comparable: dtype: bfloat16 in A, float16 in B\n" in out
    assert "s.py::t5\n  Not so here: version: 0.11.0 in A, sim:h200 in B\n" in out


def test_what_only_one_run_has_of_most_tests_is_told_once(tmp_path, capsys):
    before = [{**A, "nodeid": f"s.py::t{n}"} for n in range(4)]
    without = {**A["metrics"], "tpj": metric("tpj", reason="no sensor")}
    now = [{**test, "metrics": without} for test in before]
    out = lines_of(run(*before), run(*now), capsys, tmp_path)
    assert "Not in both, in all 4 tests: tpj: no value in B (no sensor)\n" in out
    assert out.count("no sensor") == 1


def test_the_caveat_on_other_boards_is_told_once(tmp_path, capsys):
    before = [{**A, "nodeid": f"s.py::t{n}"} for n in range(4)]
    now = [{**SLOWER, "nodeid": f"s.py::t{n}"} for n in range(4)]
    out = lines_of(run(*before), run(*now, gpus=("GPU-2",)), capsys, tmp_path)
    assert out.count("* of other boards") == 1


def test_the_power_limit_of_a_simulated_engine_is_no_difference_of_its_own():
    other = run(simulated(A))
    other["environment"]["gpus"][0]["power_limit_w"] = 600.0
    (test,) = compare_runs(results(A), Results.model_validate(other)).tests
    assert test.incomparable == ("simulated: False in A, True in B",)


def test_more_boards_of_one_power_limit_have_that_limit():
    runs = compare_runs(results(A), results(A, gpus=("GPU-1", "GPU-2")))
    assert not any(told.startswith("power limit") for told in runs.environment)
    assert runs.tests[0].incomparable == ()


def test_metrics_of_two_searches_are_not_compared_where_they_found_other_rates(tmp_path, capsys):
    test = compared(searched(16.0, 0.005), searched(12.0, 0.004))
    assert figures(test)["tpot"].other_rate
    assert figures(test)["tpot"].outside_noise is None
    assert figures(test)["max_rate"].outside_noise == "worse"
    assert not figures(compared(searched(16.0, 0.005), searched(16.0, 0.004)))["tpot"].other_rate
    lines = printed(tmp_path, capsys, [searched(16.0, 0.005)], [searched(12.0, 0.004)])
    assert "  All but max_rate was measured at another rate: that found by the search." in lines


def test_many_tests_of_one_run_are_one_line(tmp_path, capsys):
    lines = printed(tmp_path, capsys, many(*[1] * 9), many(1))
    assert any(line.startswith("only in A, 8 tests: 1, 2, 3") for line in lines)
