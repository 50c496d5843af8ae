"""The clock of most tokens per joule, on curves whose optimum is known."""

import math
from random import Random

import pytest

from pytest_llmperf.findings import find
from tests.findings import records
from tests.findings.records import column, results, said

CLOCKS = (750, 800, 850, 900, 950, 1000, 1050, 1100)
#: Relative distances of three launches.
NOISE = (0.995, 1.0, 1.005)


#: Of which one launch is enough.
EXACT = {"simulated": True, "args": {"launch_noise": 0.0, "repeat_noise": 0.0}}


def case(nodeid, **more):
    """A test's record, of an engine without noise unless it is told otherwise."""
    return records.case(nodeid, **{"engine": EXACT, **more})


def yields(clock, best=900.0, width=400.0):
    """A parabola."""
    return 5 * (1 - ((clock - best) / width) ** 2)


def sweep(of=yields, clocks=CLOCKS, launches=(1.0,), latency=lambda clock: 9000 / clock, **work):
    return [
        case(
            f"s.py::test_clock[{clock}]", clock=float(clock), batch=16,
            values={
                "tpj": tuple(of(clock) * one for one in launches), "power": clock / 8, "throughput": clock / 2,
                "e2e_latency": latency(clock), "tpot": latency(clock) / 256, "ttft": latency(clock) / 10,
            }, **work,
        )
        for clock in clocks
    ]  # fmt: skip


def spots(*tests):
    return [finding for finding in find(results(*tests)) if finding.kind == "sweet_spot"]


def optimum(finding):
    return next(mark for mark in finding.marks if mark.name == "optimum")


def test_the_optimum_lies_between_its_neighbours_on_the_grid():
    [finding] = spots(*sweep())
    mark = optimum(finding)
    assert (mark.x, mark.low, mark.high) == (900, 850, 950)
    assert mark.y == 5
    assert "Most output tokens per joule at 900 MHz: 5.000 tokens/J" in said(finding)
    assert column(finding, "clock") == list(CLOCKS)
    assert len(finding.tests) == len(CLOCKS)


def test_noise_widens_the_interval_to_clocks_that_are_certainly_worse():
    [finding] = spots(*sweep(launches=NOISE))
    mark = optimum(finding)
    # A step of 50 MHz costs 1.6 % at most, and launches differ by 0.5 %; two steps are beyond doubt.
    assert (mark.low, mark.high) == (850, 950)
    [finding] = spots(*sweep(launches=(0.97, 1.0, 1.03)))
    mark = optimum(finding)
    assert mark.x == 900
    assert mark.low < 850
    assert mark.high > 950
    assert "certainly worse" in said(finding)


def test_one_launch_more_or_no_spread_falls_back_to_the_grid():
    [finding] = spots(*sweep(launches=(1.0, 1.0, 1.0)))
    assert (optimum(finding).low, optimum(finding).high) == (850, 950)
    assert "certainly" not in said(finding)


def test_the_recommendation_is_against_the_free_clock_and_the_highest():
    free = case("s.py::test_free", batch=16, values={"tpj": 2.5, "e2e_latency": 8.0, "power": 200.0})
    [finding] = spots(*sweep(), free)
    assert finding.sentences[0] == (
        "Lock at 1050 MHz: -41.8 % energy, +7.1 % latency (512 + 256 tokens, batch 16, against the clock running "
        "free); "
        "most tokens per joule at 900 MHz: -50.0 % energy, +25.0 % latency."
    )
    assert "Of the clocks swept 900 MHz is -25.0 % energy, +22.2 % latency (against 1100 MHz" in said(finding)
    assert "s.py::test_free" in finding.tests
    assert column(finding, "held") == ["locked"] * len(CLOCKS) + ["free"]
    assert column(finding, "clock")[-1] is None


def test_marks_say_their_clock_and_its_own_latency():
    free = case("s.py::test_free", batch=16, values={"tpj": 2.5, "e2e_latency": 8.0, "power": 200.0})
    free["clock"] |= {"observed_mhz": {"min": 1300.0, "median": 1485.0, "max": 1530.0}}
    [finding] = spots(*sweep(), free)
    labels = {mark.name: mark.label for mark in finding.marks}
    assert labels == {
        "optimum": "900 MHz: +25.0 %",
        "interval": "optimum: 850 to 950 MHz",
        "limit": "1050 MHz: +7.1 %",
        "free": "running free: 1485 MHz",
    }
    assert column(finding, "clock")[-1] == 1485
    [mark] = [mark for mark in finding.marks if mark.name == "free"]
    assert (mark.x, mark.y) == (1485, 2.5)


def test_without_a_clock_within_the_limit_no_lock_is_worth_it():
    free = case("s.py::test_free", batch=16, values={"tpj": 2.5, "e2e_latency": 6.0, "power": 200.0})
    [finding] = spots(*sweep(), free)
    assert finding.sentences[0] == (
        "No lock is worth it within +10 % latency, which no clock of the sweep keeps (512 + 256 tokens, batch "
        "16, against "
        "the clock running free); most tokens per joule at 900 MHz: -50.0 % energy, +66.7 % latency."
    )
    assert not [mark for mark in finding.marks if mark.name == "limit"]
    # One that keeps it and saves nothing beyond doubt is no reason to lock either.
    steep = sweep(lambda clock: 5.0 if clock == 900 else 2.51, launches=(0.99, 1.0, 1.01))
    barely = case("s.py::test_free", batch=16, values={"tpj": (2.48, 2.5, 2.52), "e2e_latency": 8.0})
    [finding] = spots(*steep, barely)
    assert finding.sentences[0].startswith("No lock is worth it within +10 % latency (512 + 256 tokens")


def test_the_best_clock_within_the_limit_is_told_once():
    [finding] = spots(*sweep(latency=lambda clock: 9.0 - clock / 1e4))
    assert finding.sentences[0] == (
        "Lock at 900 MHz: -25.0 % energy, +0.2 % latency (512 + 256 tokens, batch 16, against 1100 MHz), the "
        "clock of most "
        "tokens per joule."
    )


def test_a_gain_within_the_noise_recommends_no_lock():
    [finding] = spots(*sweep(lambda clock: yields(clock, width=4000.0), launches=NOISE))
    assert finding.sentences[0].startswith(
        "No lock is worth it (512 + 256 tokens, batch 16, against 1100 MHz): none takes clearly less energy, "
        "the best, "
        "900 MHz, is -0.2 % energy, +22.2 % latency"
    )


def test_a_free_clock_that_is_best_is_left_free():
    free = case("s.py::test_free", batch=16, values={"tpj": 6.0, "e2e_latency": 8.0})
    [finding] = spots(*sweep(), free)
    assert "the best, 900 MHz, is +20.0 % energy" in finding.sentences[0]
    assert finding.sentences[0].startswith("No lock is worth it")


@pytest.mark.parametrize(
    ("best", "edge", "add"),
    [(500.0, "below 750 MHz", "700 and 650"), (1500.0, "above 1100 MHz", "1150 and 1200")],
)
def test_an_optimum_at_the_edge_may_lie_beyond(best, edge, add):
    [finding] = spots(*sweep(lambda clock: yields(clock, best, 2000.0)))
    assert f"The optimum may lie {edge}" in said(finding)
    assert f"add {add} MHz" in said(finding)


def test_without_better_clocks_below_the_end_is_told_as_not_told_apart():
    [finding] = spots(*sweep(launches=(0.8, 1.0, 1.25)))
    assert "cannot be told from the best by these launches" in said(finding)
    assert (optimum(finding).low, optimum(finding).high) == (750, 1100)


def test_a_prefill_counts_its_prompt_tokens():
    [finding] = spots(*sweep(lambda clock: yields(clock) / 512, output_len=1))
    assert optimum(finding).y == pytest.approx(5.0)
    assert "Most prompt tokens per joule at 900 MHz" in said(finding)
    assert next(c.title for c in finding.columns if c.name == "tpj") == "Prompt tokens per joule"


def test_latency_limits_are_those_of_the_load():
    limited = sweep(slo={"e2e_latency": 9.1})
    [finding] = spots(*limited)
    assert finding.sentences[0].startswith("Lock at 1000 MHz: -20.0 % energy, +10.0 % latency")
    assert "within the limit on end-to-end latency of 9.100 s; most tokens per joule at 900 MHz" in finding.sentences[0]
    assert [mark.x for mark in finding.marks if mark.name == "limit"] == [1000]
    [finding] = spots(*sweep(slo={"ttft": 1e-3}))
    assert finding.sentences[0].startswith("No clock of the sweep keeps the limit on TTFT of 1.000 ms (512 + 256")


def test_without_limits_some_are_offered():
    [finding] = spots(*sweep())
    told = next(
        sentence for sentence in finding.sentences if sentence.startswith("Of most tokens per joule under a limit")
    )
    # 1100 MHz is the reference; +10 % is kept from 1000 MHz on, +25 % from 900 MHz.
    assert "1050 MHz for +5 %" in told
    assert "1000 MHz for +10 %" in told
    assert "900 MHz for +25 %" in told


def test_clocks_that_snap_together_count_once():
    tests = [*sweep(clocks=(750, 800, 850)), *(
        case(f"s.py::test_clock[{asked}]", clock=850.0, requested=asked, batch=16, values={"tpj": 5.0, "power": 1.0})
        for asked in (1600.0, 1700.0)
    )]  # fmt: skip
    [finding] = spots(*tests)
    assert column(finding, "clock") == [750, 800, 850]
    assert "850, 1600 and 1700 MHz were all held at 850 MHz and count once." in finding.sentences


def test_latency_that_was_not_measured_is_not_told():
    tests = [case(f"t[{c}]", clock=float(c), batch=1, values={"tpj": yields(c)}) for c in CLOCKS]
    [finding] = spots(*tests)
    assert finding.sentences[0] == "Lock at 900 MHz: -25.0 % energy (512 + 256 tokens, batch 1, against 1100 MHz)."
    assert column(finding, "e2e_latency") == [None] * len(CLOCKS)


def test_of_many_batches_that_one_stands_for_all_which_other_sweeps_share():
    def named(tests, name):
        return [{**one, "nodeid": f"{name}-{one['nodeid']}"} for one in tests]

    batches = [one for batch in (1, 4, 16, 64) for one in named(sweep(), batch)]
    for at, one in enumerate(batches):
        one["workload"] = {**one["workload"], "batch": (1, 4, 16, 64)[at // len(CLOCKS)]}
    [alone] = spots(*batches)
    assert alone.name.endswith("batch-16")
    shared = named(sweep(output_len=1), "prefill")
    for one in shared:
        one["workload"] = {**one["workload"], "batch": 4}
    assert sorted(one.name for one in spots(*batches, *shared)) == ["512-256-batch-4", "prefill-512-batch-4"]


def test_two_clocks_are_no_sweep():
    assert spots(*sweep(clocks=(750, 900))) == []


def test_tests_that_are_invalid_do_not_count():
    tests = sweep()
    tests[3]["invalid"] = "the board was throttled"
    [finding] = spots(*tests)
    assert 900 not in column(finding, "clock")


@pytest.mark.parametrize("engine", [{}, {"simulated": True, "args": {"launch_noise": 0.005, "repeat_noise": 0.0}}])
def test_one_launch_of_an_engine_with_noise_recommends_nothing(engine):
    [finding] = spots(*sweep(engine=engine))
    assert finding.sentences[0] == (
        "No lock is told to be worth it (512 + 256 tokens, batch 16, against 1100 MHz): one launch a clock does not "
        "show how launches vary. Most tokens per joule were at 900 MHz: -25.0 % energy, +22.2 % latency."
    )
    assert [mark.name for mark in finding.marks] == ["optimum"]
    assert optimum(finding).low is None
    assert "--llmperf-launches=3" in said(finding)
    [finding] = spots(*sweep(engine=engine, launches=NOISE))
    assert finding.sentences[0].startswith("Lock at 1000 MHz")


def test_of_constant_curves_few_recommend_a_lock():
    random = Random(7)
    clocks = range(750, 1350, 50)
    locks = 0
    for _ in range(200):
        tests = [
            records.case(f"t[{c}]", clock=float(c), values={
                "tpj": tuple(5 * math.exp(random.gauss(0, 0.02)) for _ in range(3)), "e2e_latency": 1.0,
            })
            for c in clocks
        ]  # fmt: skip
        [finding] = spots(*tests)
        locks += finding.sentences[0].startswith("Lock")
    # The best of twelve is held against the last: uncorrected, a fifth of them would.
    assert locks <= 10


def test_two_maxima_are_told_as_two():
    heights = dict.fromkeys(CLOCKS, 4.0) | {750: 4.99, 1000: 5.0}
    [finding] = spots(*sweep(heights.get, launches=NOISE))
    assert "Within 1.0 % of it: 750 and 1000 MHz." in said(finding)
    assert "The curve has more than one maximum: 750 and 1000 MHz cannot be told from the best" in said(finding)
    assert (optimum(finding).low, optimum(finding).high) == (750, 1050)
    [finding] = spots(*sweep(launches=NOISE))
    assert "more than one maximum" not in said(finding)


def test_clocks_without_energy_are_named_and_no_advice():
    tests = sweep(lambda clock: yields(clock, best=1500.0, width=2000.0))
    tests += [case(f"s.py::test_clock[{c}]", clock=float(c), batch=16, values={"tpj": None, "power": None, "tpot": 1.0})
              for c in (1150, 1200)]  # fmt: skip
    [finding] = spots(*tests)
    assert "Energy was not measured at 1150 and 1200 MHz: not measured." in finding.sentences
    assert "add 1150" not in said(finding)
    assert "The optimum may lie above 1100 MHz" in said(finding)


def test_less_than_a_percent_is_no_reason_to_lock():
    for gain, told in ((1.005, "No lock is worth it"), (1.02, "Lock at 900 MHz: -2.0 % energy")):
        [finding] = spots(*sweep(lambda clock, gain=gain: gain if clock == 900 else 1.0, latency=lambda clock: 9.0))
        assert finding.sentences[0].startswith(told)
