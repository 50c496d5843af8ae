"""Ratios that were published of other hardware: the simulation has each one's trend.

How near it comes prints ``python -m benchmarks.simulation.published``. Engines have lost overhead since, so what is
asserted is the sign and the order; where today's engine cannot have the published figure, one that launches its layers
one by one comes near it.
"""

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.simulation import published
from benchmarks.simulation.published import CLAIMS, LAYER_BY_LAYER, TODAY, gpus_needed
from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.errors import EngineError
from pytest_llmperf.models import resolve

BY_KEY = {claim.key: claim for claim in CLAIMS}


@cache
def ratio(key, era=TODAY):
    return BY_KEY[key].simulated(era)


def error(key, era=TODAY):
    return BY_KEY[key].error(ratio(key, era))


@pytest.mark.parametrize(("key", "weights"), [("mpt-size", 4.5), ("llama-size", 5.3)])
def test_latency_is_sublinear_in_size(key, weights):
    assert 2 < ratio(key) < 0.9 * weights
    # The more so the more of the time is overhead.
    assert 1.5 < ratio(key, LAYER_BY_LAYER) < ratio(key)


def test_a_batch_of_64_on_an_a100_costs_little_latency_for_its_throughput():
    assert ratio("batch-latency") == pytest.approx(4, rel=0.15)
    assert ratio("batch-throughput") == pytest.approx(14, rel=0.15)


@pytest.mark.parametrize("era", published.ERAS, ids=lambda era: era.name)
def test_more_gpus_help_less_than_their_number_and_more_at_batch_16(era):
    assert 0.5 < ratio("split-16", era) < ratio("split-1", era) < 1


def test_launches_explain_how_little_they_helped_at_batch_1():
    assert ratio("split-1", LAYER_BY_LAYER) == pytest.approx(0.88, abs=0.08)
    assert ratio("split-16", LAYER_BY_LAYER) == pytest.approx(0.67, abs=0.08)


def test_the_newer_board_is_faster_and_more_so_at_batch_16():
    assert 0.4 < ratio("boards-16") < ratio("boards-1") < 0.64
    assert ratio("boards-16") == pytest.approx(0.48, abs=0.04)


def test_of_the_peak_bandwidth_most_is_used_at_batch_1_and_less_of_it_by_more_gpus():
    assert 0.5 < ratio("mbu-a100") < ratio("mbu-h100") < 0.8
    assert abs(error("mbu-h100")) < 0.2
    assert abs(error("mbu-a100")) < 0.2
    assert ratio("mbu-h100") > TODAY.mbu("h100", "llama-2-70b", 4)


def test_prompt_tokens_are_cheap():
    assert 0.1 < ratio("prompt-tokens") < 1


def test_continuous_batching_has_ten_to_twenty_times_the_throughput_of_dynamic_batching():
    assert 8 < ratio("batching") < 20


class TestEightBits:
    @pytest.mark.parametrize(("board", "needed"), [("a100-40gb", 4), ("a100", 2), ("h100", 2)])
    def test_they_halve_the_gpus_needed(self, board, needed):
        assert gpus_needed(board, "llama-2-70b") == needed
        assert gpus_needed(board, "llama-2-70b", "fp8") == needed // 2

    def test_at_the_same_speed(self):
        assert ratio("8-bit-speed") == pytest.approx(1, abs=0.15)

    def test_what_even_eight_gpus_do_not_hold_is_refused(self, monkeypatch):
        stored = Architecture.from_config(resolve("llama-2-70b").config)
        monkeypatch.setattr(published, "_architecture", lambda _: stored.served_as("float32", None))
        with pytest.raises(EngineError, match="memory"):
            gpus_needed("v100", "llama-2-70b")


def test_machine_balance_is_what_it_is():
    assert abs(error("balance")) < 0.005
    assert abs(error("balance-sheet")) < 0.005


@pytest.mark.parametrize(("model", "parameters"), [
    ("mpt-7b", 6_649_286_656), ("mpt-30b", 29_957_200_896), ("llama-2-13b", 13_015_864_320),
    ("llama-2-70b", 68_976_648_192),
])  # fmt: skip
def test_the_models_have_their_checkpoints_parameters(model, parameters):
    assert Architecture.from_config(resolve(model).config).total_params == parameters


class TestErrors:
    def test_of_a_range_the_nearer_end_counts(self):
        batching = BY_KEY["batching"]
        assert batching.error(15) == 0
        assert batching.error(9) == pytest.approx(-0.1)
        assert batching.error(22) == pytest.approx(0.1)
        assert BY_KEY["mpt-size"].error(3) == pytest.approx(0.2)

    def test_the_table_has_a_row_a_claim_with_both_engines_figures(self, monkeypatch):
        claims = [BY_KEY[key] for key in ("mpt-size", "batching", "balance")]
        claims[1] = replace(claims[1], simulated=lambda era: 8 if era is TODAY else 21)
        monkeypatch.setattr(published, "CLAIMS", claims)
        lines = published.table()
        assert len(lines) == len(claims) + 2
        assert len({line.count("|") for line in lines}) == 1
        assert "| 2.5 | 3." in lines[2]
        assert "| 10 to 20 | 8 | -20% | 21 | +5% |" in lines[3]

    def test_every_claim_is_there_once(self):
        assert len(BY_KEY) == len(CLAIMS)
