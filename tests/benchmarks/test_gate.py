"""The comparison of gates: its samples are what they say, and everyone judges the same ones."""

import json
from dataclasses import replace

import numpy as np
import pytest
from pytest_benchmark.stats import Stats

from benchmarks.gate import bounds, compare, tables, through_plugin
from benchmarks.gate.contestants import CONTESTANTS, GATE
from benchmarks.gate.scenarios import METRICS, SCENARIOS, TESTS, Scenario, draw, launch_sd
from benchmarks.gate.tallies import Mean, Tally
from pytest_llmperf.calibration.trials import Fate


def launches(scenario, draws=400):
    """Logarithms of the launch medians of many runs."""
    random = np.random.default_rng(5)
    return np.stack([np.log(np.median(draw(scenario, random)[1], axis=-1)) for _ in range(draws)])


def test_without_noise_in_a_launch_its_median_differs_by_that_between_launches():
    assert launch_sd(Scenario("x", ratio=0), draws=200) == pytest.approx(0.007, rel=0.02)
    # The median of five Gaussian values has 0.2868 of their variance.
    noisy = launch_sd(Scenario("x", ratio=3.0), draws=200)
    assert noisy == pytest.approx(0.007 * (1 + 9 * 0.2868) ** 0.5, rel=0.02)


@pytest.mark.parametrize("shared", [0.0, 0.5, 1.0])
def test_what_is_shared_correlates_the_tests(shared):
    logs = launches(Scenario("x", ratio=0, shared=shared))
    one, other = logs[:, 0].ravel(), logs[:, METRICS].ravel()
    assert np.corrcoef(one, other)[0, 1] == pytest.approx(shared, abs=0.06)


def test_heavy_tails_are_heavy_and_a_bimodal_machine_has_two_modes():
    gaussian, heavy = (launches(Scenario("x", ratio=0, tails=tails)) for tails in ("gaussian", "t3"))
    far = 5 * 0.007
    assert np.mean(np.abs(heavy) > far) > 0.001 > np.mean(np.abs(gaussian) > far)
    slow = launches(Scenario("x", between=0.0005, ratio=0, bimodal=True)) > 0.02
    assert slow.mean() == pytest.approx(0.3, abs=0.03)
    assert np.all(slow == slow[:, :1])  # of a launch all tests, or none


def test_metrics_that_are_alike_are_the_same_values():
    baseline, _ = draw(Scenario("x", alike=True), np.random.default_rng(0))
    assert np.all(baseline[0] == baseline[METRICS - 1])
    assert np.any(baseline[0] != baseline[METRICS])


@pytest.mark.parametrize("field", ["median", "mean"])
@pytest.mark.parametrize("worse", [0.0, 0.03])
def test_pytest_benchmark_is_asked_as_it_would_ask_itself(field, worse):
    baseline, current = draw(SCENARIOS[2], np.random.default_rng(3))
    found = CONTESTANTS[f"pytest-benchmark {field}:3%, 8 launches"](baseline, current, [worse])[0]
    for before, after, fate in zip(baseline, current * (1 + worse), found, strict=True):
        stats = []
        for rounds in (before, after):
            one = Stats()
            for seconds in rounds.ravel():
                one.update(float(seconds))
            stats.append(getattr(one, field))
        assert fate == Fate("regressed" if stats[1] / stats[0] * 100 - 100 > 3 else "pass", 8)


def test_everyone_finds_twenty_percent_and_the_gate_alone_holds_its_errors():
    tallies = compare.judged(SCENARIOS[1], seed=1, runs=6, worsenings=(0.0, 0.03, 0.2))
    for name in CONTESTANTS:
        assert tallies[name, 0.2].regressed.value == 1
    assert tallies[GATE, 0.0].alarmed == 0
    assert tallies[GATE, 0.03].passed.value < 0.1
    assert tallies["3 % on one launch's median", 0.03].passed.value > 0.3
    assert tallies["Mann-Whitney U, 0.05, 8 launches", 0.0].alarmed == 6


def test_tallies_of_parts_are_those_of_the_whole():
    runs = [
        [Fate("pass", 1)] * 40,
        [Fate("regressed", 2), *[Fate("inconclusive", 8)] * 39],
        [Fate("improved", 3)] * 40,
    ]
    whole, part, other = Tally(), Tally(), Tally()
    for run in runs:
        whole.take(run)
    part.take(runs[0])
    other.take(runs[1])
    other.take(runs[2])
    part.merge(other)
    assert part == whole
    assert whole.alarms.hits == 1
    assert whole.passed.value == pytest.approx(2 / 3)
    assert whole.test_launches.value == pytest.approx((1 + (2 + 9 * 8) / 10 + 3) / 3)
    assert whole.passed.error == pytest.approx(np.std([1, 0, 1], ddof=1) / 3**0.5)


def test_a_mean_of_equal_runs_has_no_error():
    mean = Mean()
    for _ in range(3):
        mean.take(0.1)
    assert mean.error == pytest.approx(0, abs=1e-8)


def test_the_bounds_are_those_of_gauss_and_student():
    random = np.random.default_rng(2)
    sd, change, alpha, pairs = 0.007, 0.05, 0.00125, 200_000
    error = sd * (1 / 5 + 1 / 8) ** 0.5
    shift = np.log1p(change) - np.log1p(0.03)
    estimate = shift + error * random.standard_normal(pairs)
    known = np.mean(estimate > 3.0233 * error)  # the quantile of Gauss
    spread = np.sqrt(random.chisquare(11, pairs) / 11)
    of_t = np.mean(estimate > 3.8989 * error * spread)  # that of Student with 11
    assert bounds.power(change, sd, alpha) == pytest.approx(known, abs=0.005)
    assert bounds.power(change, sd, alpha, df=11) == pytest.approx(of_t, abs=0.005)
    assert bounds.passing(sd, 0.05) > bounds.passing(sd, 0.05, df=4) > 0.8


def test_no_gate_needs_fewer_launches_than_the_best_that_knows_the_noise():
    random = np.random.default_rng(4)
    sd, runs = 0.0132, 50_000
    baseline = sd * random.standard_normal((runs, 5)).mean(axis=-1)
    mean = np.cumsum(sd * random.standard_normal((runs, 8)), axis=-1) / np.arange(1, 9)
    bound = mean - baseline[:, None] + 1.645 * sd * (1 / 5 + 1 / np.arange(1, 9)) ** 0.5
    passed = bound < np.log1p(0.03)
    assert bounds.passing(sd, 0.05, launches=3) == pytest.approx(passed[:, 2].mean(), abs=0.01)
    assert bounds.fewest(sd, 0.05) == pytest.approx(1 + (~passed[:, :7]).mean(axis=0).sum(), abs=0.03)
    assert bounds.fewest(0.001, 0.05) == pytest.approx(1)


def test_the_quick_comparison_prints_a_table_and_the_goals_of_every_scenario(capsys, tmp_path):
    compare.main(["--quick", "--processes", "1", "--json", str(tmp_path / "figures.json"),
                  "--markdown", str(tmp_path / "figures.md")])  # fmt: skip
    printed = capsys.readouterr().out
    assert printed.count("### ") == len(SCENARIOS)
    assert printed.count("+5 % is called regressed in 90 %") == len(SCENARIOS)
    assert printed.count(f"| {GATE} |") == len(SCENARIOS)
    assert (tmp_path / "figures.md").read_text("utf-8").endswith("\n" + printed.rstrip("\n") + "\n")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert len(figures) == len(SCENARIOS) * len(CONTESTANTS) * len(compare.WORSENINGS)
    assert all(one["alarmed"] == 0 for one in figures if one["by"] == GATE and one["worsening"] == 0)


def tally(*fates):
    """Of runs in which all comparisons have the same fate."""
    one = Tally()
    for fate in fates:
        one.take([fate] * (TESTS * METRICS))
    return one


def test_all_tables_go_into_one_file():
    scenario, pass_, regressed = SCENARIOS[1], Fate("pass", 1), Fate("regressed", 4)
    good = {(GATE, 0.0): tally(*[pass_] * 300), (GATE, 0.03): tally(regressed, *[Fate("inconclusive", 8)] * 3),
            (GATE, 0.05): tally(regressed), (GATE, 0.10): tally(regressed)}  # fmt: skip
    noisy = {**good, (GATE, 0.05): tally(regressed, pass_)}
    found = [(replace(scenario, name=name), by, compare.goals(by)) for name, by in (("calm", good), ("wild", noisy))]
    written = tables.document(300, found)
    assert "--runs 300 " in written
    # The bound is Gauss's at an error of 0.2/40 a comparison.
    sd = launch_sd(scenario, draws=300)
    best, of_t = bounds.power(0.05, sd, 0.005), bounds.power(0.05, sd, 0.005, df=11)
    assert (
        f"| calm | {sd:.2%} | 0 of 300 | 100.0% | 1.00 / 1.00 | {bounds.fewest(sd, 0.05):.2f} | "
        f"25.0% (0.6% to 80.6%) | 0.0% ± 0.0% | 0.00% | 100.0% ± 0.0% | {best:.1%} | {of_t:.1%} |\n"
    ) in written
    assert "| +5 % passes in at most 1 % | 1 of 2 | wild (50.00%) |\n" in written
    assert "| +3 % passes in at most 5 % | 2 of 2 | - |\n" in written
    assert [line for line in written.splitlines() if line.startswith("### ")] == ["### calm", "### wild"]


def test_a_goal_is_missed_when_its_figure_is():
    good = [Fate("pass", 1)] * 300
    tallies = {(GATE, 0.0): tally(*good), (GATE, 0.03): tally(Fate("inconclusive", 8)),
               (GATE, 0.05): tally(Fate("regressed", 4))}  # fmt: skip
    assert [goal.met for goal in compare.goals(tallies)] == [True] * 5
    tallies[GATE, 0.0] = tally(*good, *[Fate("regressed", 2)] * 5)
    tallies[GATE, 0.05] = tally(*[Fate("regressed", 4)] * 8, Fate("pass", 1), Fate("inconclusive", 8))
    tallies[GATE, 0.03] = tally(Fate("pass", 1), Fate("inconclusive", 8))
    assert [goal.met for goal in compare.goals(tallies)] == [False, True, False, False, False]


def test_a_figure_is_placed_among_draws_on_both_sides():
    among = list(range(99))
    assert through_plugin.placed(-1, among) == pytest.approx(0.02)
    assert through_plugin.placed(1000, among) == pytest.approx(0.02)
    assert through_plugin.placed(49, among) == 1.0
    assert through_plugin.placed(5, [5] * 99) == 1.0


def test_the_same_design_is_drawn_from_samples():
    same, slower = through_plugin.drawn((0.0, 0.08), 2, 2, np.random.default_rng(1))
    assert (same.alarmed, same.regressed) == (0, 0)
    assert same.passed > 0.9
    assert slower.regressed > 0.9
    assert slower.launches >= 2  # one launch may pass, and may not be called regressed


def test_sessions_are_carried_out_once_and_their_figures_read(tmp_path):
    run = through_plugin.Run(1, 0, 1.3)
    kept = tmp_path / "sessions.jsonl"
    kept.write_text(json.dumps({"key": run.key, "tests": [{"verdict": "regressed", "launches": 2}]}) + "\n")
    found = list(through_plugin.carry_out([run], tmp_path, kept, processes=1))  # nothing is left to do
    assert through_plugin.of_sessions(found, 1.3).regressed == 1
    lines = list(
        through_plugin.table(
            {1.3: through_plugin.of_sessions(found, 1.3)}, {1.3: [through_plugin.Figures(1, 1, 0, 0, 2.0)] * 9}
        )
    )
    assert "| 30% slower | launches of a test | 2.00 | 2.00 to 2.00 | 1.00 |" in lines
