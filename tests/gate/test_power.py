from __future__ import annotations

import math
import re
from statistics import fmean

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from pytest_llmperf.gate import Noise, Rules, decide
from pytest_llmperf.gate.power import advice, below_noise, minimum_detectable

from .launches import known, sequence

UNKNOWN = Noise.judged([(0.0,), (0.0,)])


def judged(change, *, noise, rules, look=-1, tolerance=0.05, baseline=5):
    look %= len(rules.looks)
    after = (change,) * rules.looks[look]
    return decide((0.0,) * baseline, after, better="lower", tolerance=tolerance, noise=noise, rules=rules, look=look)


class TestMinimumDetectable:
    @pytest.mark.parametrize("gated", [1, 20])
    @pytest.mark.parametrize("df", [10, 40])
    @pytest.mark.parametrize("launches", [1, 4, 8])
    def test_the_last_look_calls_it_with_the_power_promised(self, launches, df, gated):
        """Against the exact power: that of the noncentral t distribution."""
        rules = Rules.of_run(gated, launches)
        noise = known(0.01, df)
        smallest = minimum_detectable(noise, rules, baseline=5, tolerance=0.05)
        error = 0.01 * math.sqrt(1 / launches + 1 / 5)
        in_the_end = df + (launches - 1) + 4
        critical = stats.t.isf(rules.regressed_alphas(len(rules.looks) - 1)[1], in_the_end)
        power = stats.nct.sf(critical, in_the_end, math.log(1 + smallest) / error - math.log(1.05) / error)
        assert power == pytest.approx(0.80, abs=0.03)

    def test_simulated_it_is_found_in_most_cases_and_the_tolerance_is_not(self):
        rules = Rules.of_run(1, 8)
        noise = Noise.judged([(0.0,) * 5, (0.0,)], 0.03, 12.0, 5)
        noise = Noise(0.03, 16.0, 0.03, 4, 0.03, 12.0, 5, "pooled")
        smallest = minimum_detectable(noise, rules, baseline=5, tolerance=0.05)

        def found(change):
            runs = [sequence(rules, change, tolerance=0.05, sd=0.03, seed=seed, pooled_df=12) for seed in range(400)]
            return fmean(verdict == "regressed" for verdict, _ in runs)

        assert found(smallest) > 0.75
        error = rules.limit_alpha
        assert found(0.05) < error + 3 * math.sqrt(error * (1 - error) / 400)
        assert found(0.05 + 2 * (smallest - 0.05)) > 0.97

    @given(st.floats(1e-4, 0.2), st.floats(1, 100), st.floats(0, 1), st.integers(1, 20), st.integers(1, 8))
    def test_it_lies_beyond_the_tolerance_and_more_of_anything_makes_it_smaller(
        self, sd, df, tolerance, gated, baseline
    ):
        def smallest(launches=4, baseline=baseline, gated=gated):
            rules = Rules.of_run(gated, launches)
            return minimum_detectable(known(sd, df), rules, baseline=baseline, tolerance=tolerance) or math.inf

        assert smallest() > tolerance
        assert smallest(launches=8) <= smallest()
        assert smallest(baseline=baseline + 1) <= smallest()
        assert smallest(gated=gated + 1) >= smallest()

    @pytest.mark.parametrize("launches", [1, 2, 8])
    def test_of_unknown_noise_nothing_is_known_to_be_detectable(self, launches):
        assert minimum_detectable(UNKNOWN, Rules.of_run(1, launches), baseline=1, tolerance=0.05) is None

    def test_a_change_beyond_all_measure_is_none(self):
        assert minimum_detectable(known(50.0, 1), Rules.of_run(100, 1), baseline=1, tolerance=0.05) is None


class TestBelowNoise:
    RULES = Rules.of_run(1, 8)

    def test_it_names_the_tolerance_from_which_an_unchanged_engine_passes(self):
        text = below_noise(known(0.05, 30), self.RULES, baseline=5, tolerance=0.03)
        assert "tolerance of 3.0% is below the noise" in text
        assert "5.00%" in text
        needed = float(re.search(r"only from ([\d.]+) %", text)[1]) / 100
        assert below_noise(known(0.05, 30), self.RULES, baseline=5, tolerance=needed) is None
        assert below_noise(known(0.05, 30), self.RULES, baseline=5, tolerance=needed - 0.002) is not None
        # with it, an unchanged engine does pass
        runs = [sequence(self.RULES, 0.0, tolerance=needed, sd=0.05, seed=seed, pooled_df=26) for seed in range(300)]
        assert fmean(verdict in ("pass", "improved") for verdict, _ in runs) > 0.8

    def test_a_tolerance_of_nothing_lies_below_any_noise(self):
        assert below_noise(known(1e-5, 100), self.RULES, baseline=5, tolerance=0.0) is not None

    def test_unknown_noise_is_below_nothing(self):
        assert below_noise(UNKNOWN, self.RULES, baseline=1, tolerance=0.0) is None


class TestAdvice:
    def advised(self, change, *, sd=0.03, df=20, launches=2, gated=1, tolerance=0.05, baseline=5):
        noise, rules = known(sd, df), Rules.of_run(gated, launches)
        found = judged(change, noise=noise, rules=rules, tolerance=tolerance, baseline=baseline)
        text = (
            None
            if found.verdict != "inconclusive"
            else advice(found, noise, rules, baseline=baseline, current=launches, tolerance=tolerance)
        )
        return found, noise, rules, text

    def test_one_launch_of_each_is_told_to_save_several(self):
        found = judged(0.0, noise=UNKNOWN, rules=Rules(), baseline=1)
        text = advice(found, UNKNOWN, Rules(), baseline=1, current=1, tolerance=0.05)
        assert text.startswith("One launch against one says nothing of the noise")
        assert "--llmperf-save" in text
        assert "--llmperf-launches" in text

    @pytest.mark.parametrize(("change", "verdict"), [(0.02, "pass"), (0.06, "regressed")])
    def test_the_launches_that_it_names_decide_and_one_less_does_not(self, change, verdict):
        _, noise, _, text = self.advised(change, sd=0.02)
        needed = int(re.search(r"--llmperf-launches=(\d+)", text)[1])
        assert text.endswith(f"would make it {verdict}.")
        assert needed > 2
        # What further launches add to the knowledge of the noise is added to it as in the end.
        for launches, expected in ((needed, verdict), (needed - 1, "inconclusive")):
            noise_then = known(noise.sd, max(noise.df, launches - 1 + 4 + noise.pooled_df))
            assert judged(change, noise=noise_then, rules=Rules.of_run(1, launches)).verdict == expected

    @given(st.floats(-0.3, 0.3), st.floats(0.005, 0.1), st.integers(1, 8), st.floats(0, 0.3), st.integers(1, 8))
    def test_the_tolerance_that_it_names_decides(self, change, sd, launches, tolerance, baseline):
        _, noise, rules, text = self.advised(change, sd=sd, launches=launches, tolerance=tolerance, baseline=baseline)
        assume(text is not None)
        if wider := re.search(r"a tolerance of (-?[\d.]+) %", text):
            named = float(wider[1]) / 100
            assert named > tolerance
            again = judged(change, noise=noise, rules=rules, tolerance=named + 1e-9, baseline=baseline)
            assert again.verdict in ("pass", "improved")
        if narrower := re.search(r"a tolerance below (-?[\d.]+) %", text):
            named = float(narrower[1]) / 100
            assert 0 < named < tolerance + 1e-9
            again = judged(change, noise=noise, rules=rules, tolerance=named - 1e-9, baseline=baseline)
            assert again.verdict == "regressed"

    def test_where_no_number_of_launches_would_do_it_asks_for_a_longer_baseline(self):
        _, _, _, text = self.advised(0.02, sd=0.02, baseline=2)
        assert "a baseline of more launches" in text
        assert "--llmperf-launches" not in text

    def test_where_not_even_that_would_do_it_only_another_tolerance_is_left(self):
        _, _, _, text = self.advised(0.0475, sd=0.03)
        assert text.startswith("The change is about as large as the tolerance: a tolerance of ")

    @pytest.mark.parametrize("beside", [-1e-9, 0.0, 1e-9])
    @pytest.mark.parametrize(
        ("better", "said"),
        [
            ("lower", "a tolerance of 5.1 % would make it pass, one below 4.9 % regressed."),
            (
                "higher",
                "a tolerance of 5.1 % (down to -4.9 %) would make it pass, one below 4.9 % (down to -4.7 %) regressed.",
            ),
        ],
    )
    def test_of_a_change_as_large_as_the_tolerance_the_same_is_said_on_both_sides(self, beside, better, said):
        noise, rules = known(1e-8, 11), Rules.of_run(43, 8)
        found = judged(math.log(1.05) + beside, noise=noise, rules=rules)
        assert found.verdict == "inconclusive"
        text = advice(found, noise, rules, baseline=5, current=8, tolerance=0.05, better=better)
        assert text == f"The change is as large as the tolerance, and launches do not decide that: {said}"

    def test_a_tolerance_is_told_as_the_change_that_it_allows_where_more_is_better(self):
        found, noise, rules, _ = self.advised(0.02)
        text = advice(found, noise, rules, baseline=5, current=2, tolerance=0.05, better="higher")
        named, allowed = (float(one) for one in re.search(r"([\d.]+) % \(down to (-[\d.]+) %\)", text).groups())
        assert allowed == pytest.approx(100 * (1 / (1 + named / 100) - 1), abs=0.05)
