"""What makes a baseline doubtful."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.baselines import BoardRecord, age_warnings, beyond_budget, few_launches, keeping_anchor

from .records import baseline, record

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def saved(at, **boards):
    known = {uuid: BoardRecord(saved_at=when.isoformat(), metrics={}) for uuid, when in boards.items()}
    return baseline().model_copy(update={"saved_at": at if isinstance(at, str) else at.isoformat(), "boards": known})


def warnings(one, boards=None, days=90.0):
    return age_warnings(one, boards, now=NOW, max_age_days=days)


class TestAge:
    @pytest.mark.parametrize(("days", "old"), [(0, False), (89.9, False), (90.1, True), (4000, True)])
    def test_it_is_old_after_so_many_days(self, days, old):
        found = warnings(saved(NOW - timedelta(days=days)))
        assert bool(found) is old
        if old:
            assert f"{int(days)} days ago" in found[0]
            assert "llmperf_baseline_max_age is 90" in found[0]

    @pytest.mark.parametrize("days", [0, 1e300])
    def test_it_may_grow_as_old_as_it_likes(self, days):
        assert warnings(saved(datetime(1970, 1, 1, tzinfo=UTC)), days=days) == []

    def test_a_clock_in_the_future_is_said_whatever_the_age_may_be(self):
        (found,) = warnings(saved(NOW + timedelta(days=1)), days=0)
        assert "in the future" in found
        assert warnings(saved(NOW + timedelta(minutes=5))) == []

    def test_zones_are_understood_and_none_is_utc(self):
        assert warnings(saved(NOW.astimezone(timezone(timedelta(hours=14))))) == []
        assert warnings(saved(NOW.replace(tzinfo=None).isoformat())) == []

    def test_the_energy_of_the_board_at_hand_may_be_older(self):
        one = saved(NOW, a=NOW - timedelta(days=100), b=NOW)
        assert [text.partition(" was")[0] for text in warnings(one, "a")] == ["The energy of a in the baseline"]
        assert warnings(one, "b") == warnings(one, "c") == warnings(one) == []

    @pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "NaN"])
    def test_what_is_no_date_is_said(self, text):
        (found,) = warnings(saved(text))
        assert "no date" in found

    @given(st.text() | st.datetimes().map(datetime.isoformat))
    def test_any_date_gives_sentences_and_no_error(self, text):
        assert all(isinstance(warning, str) for warning in warnings(saved(text)))


@pytest.mark.parametrize(("launches", "few"), [(0, True), (1, True), (4, True), (5, False), (8, False)])
def test_fewer_than_five_launches_are_said(launches, few):
    assert bool(few_launches(launches)) is few


class TestBudget:
    def crept(self, before, now, budget=0.1, better="lower", name="tpot"):
        first = baseline(**{name: record((before,), value=before, better=better)})
        heir = keeping_anchor(first, baseline(**{name: record((now,), value=now, better=better)}))
        return beyond_budget(heir.anchor, heir.summaries(None), heir.anchor_summaries(None), {name: budget, "mbu": 0.1})

    @pytest.mark.parametrize(
        ("name", "better", "now", "beyond"),
        [
            ("tpot", "lower", 1.09, False),
            ("tpot", "lower", 1.11, True),
            ("tpot", "lower", 0.1, False),
            ("throughput", "higher", 0.92, False),
            ("throughput", "higher", 0.90, True),
            ("throughput", "higher", 9.0, False),
        ],
    )
    def test_only_worse_by_more_than_it_is_said(self, name, better, now, beyond):
        found = self.crept(1.0, now, better=better, name=name)
        assert bool(found) is beyond
        if beyond:
            assert found[0].startswith(f"{name} has changed by {now - 1:+.1%} since the anchor of 2026-01-02")
            assert "--pin" in found[0]

    def test_what_has_no_value_says_nothing(self):
        first = baseline(tpot=record(launches=(), value=None, reason="one token"))
        heir = keeping_anchor(first, baseline())
        assert beyond_budget(heir.anchor, heir.summaries(None), heir.anchor_summaries(None), {"tpot": 0.0}) == []
