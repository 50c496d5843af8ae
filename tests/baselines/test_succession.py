"""What a new baseline takes over from the one that it replaces."""

from __future__ import annotations

import pytest

from pytest_llmperf.baselines import BoardRecord, keeping_anchor, load, pinned, store

from .records import baseline, changed, record


def of_board(uuid, value, **changes):
    boards = {uuid: BoardRecord(saved_at="2026", metrics={"tpj": record((value,), value=value, unit="tokens/J")})}
    return baseline(tpot=record((value,), value=value)).model_copy(update={"boards": boards, **changes})


def values(summaries):
    return {name: summary.value for name, summary in summaries.items()}


class TestAnchor:
    def test_the_first_baseline_is_the_anchor_however_many_follow(self):
        first = of_board("a", 1.0, saved_at="2026-01-01", provenance={"commit": "first"}, workload={"slo": {"ttft": 1}})
        second = keeping_anchor(first, of_board("a", 2.0))
        third = keeping_anchor(second, of_board("a", 3.0))
        assert values(third.summaries("a")) == {"tpot": 3.0, "tpj": 3.0}
        assert values(third.anchor_summaries("a")) == {"tpot": 1.0, "tpj": 1.0}
        assert (third.anchor.saved_at, third.anchor.provenance["commit"]) == ("2026-01-01", "first")
        assert third.anchor.workload == {"slo": {"ttft": 1}}

    def test_alone_it_is_its_own_anchor(self):
        first = keeping_anchor(None, of_board("a", 1.0))
        assert first.anchor is None
        assert first.anchor_summaries("a") == {}

    def test_a_pinned_one_is_the_anchor_of_what_follows(self):
        second = pinned(keeping_anchor(of_board("a", 1.0), of_board("a", 2.0)))
        assert second.anchor is None
        assert values(keeping_anchor(second, of_board("a", 3.0)).anchor_summaries("a")) == {"tpot": 2.0, "tpj": 2.0}

    @pytest.mark.parametrize("changes", [{"hardware": "NVIDIA H100"}, {"workload": "another"}, {"dtype": "float16"}])
    def test_what_was_measured_on_something_else_anchors_nothing(self, changes):
        before = of_board("a", 1.0, identity=changed(**changes))
        assert keeping_anchor(before, of_board("a", 2.0)).anchor is None

    def test_a_board_that_it_does_not_know_is_anchored_at_its_own_first_baseline(self):
        second = keeping_anchor(of_board("a", 1.0), of_board("b", 2.0))
        assert values(second.anchor_summaries("b")) == {"tpot": 1.0}
        third = keeping_anchor(second, of_board("b", 3.0))
        assert values(third.anchor_summaries("b")) == {"tpot": 1.0, "tpj": 2.0}
        assert values(third.anchor_summaries("a")) == {"tpot": 1.0, "tpj": 1.0}
        assert values(third.anchor_summaries(None)) == {"tpot": 1.0}

    def test_it_is_stored_and_loaded_with_the_baseline(self, tmp_path):
        second = keeping_anchor(of_board("a", 1.0), of_board("a", 2.0))
        store(tmp_path / "x.json", second)
        assert load(tmp_path / "x.json") == second
