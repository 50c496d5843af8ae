from __future__ import annotations

import pytest

from pytest_llmperf.baselines import BoardRecord, keeping_boards, load, store
from pytest_llmperf.errors import BaselineError

from .records import baseline, changed, record, written


class TestBoards:
    """Energy compares on the same boards only."""

    def with_boards(self, **boards):
        records = {
            uuid: BoardRecord(saved_at=at, metrics={"tpj": record(unit="tokens/J", value=value)})
            for uuid, (at, value) in boards.items()
        }
        return baseline().model_copy(update={"boards": records})

    def test_a_run_is_compared_with_its_own_boards(self):
        stored = self.with_boards(a=("2026-01-01", 1.0), b=("2026-01-02", 2.0))
        assert stored.summaries("a")["tpj"].value == 1.0
        assert stored.summaries("b")["tpj"].value == 2.0
        assert stored.of_other_boards("a") is None

    def test_speed_is_compared_on_every_board(self):
        stored = self.with_boards(a=("2026-01-01", 1.0))
        assert set(stored.summaries("c")) == set(stored.summaries(None)) == {"tpot"}

    def test_of_other_boards_those_measured_last_are_shown(self):
        stored = self.with_boards(a=("2026-01-02", 1.0), b=("2026-01-01", 2.0))
        uuid, metrics = stored.of_other_boards("c")
        assert (uuid, metrics["tpj"].value) == ("a", 1.0)
        assert baseline().of_other_boards("c") is None

    def test_saving_on_one_board_keeps_what_is_known_of_others(self):
        before, now = self.with_boards(a=("1", 1.0), b=("1", 2.0)), self.with_boards(b=("2", 3.0), c=("2", 4.0))
        kept = keeping_boards(before, now).boards
        assert {uuid: entry.metrics["tpj"].value for uuid, entry in kept.items()} == {"a": 1.0, "b": 3.0, "c": 4.0}

    def test_what_holds_for_something_else_is_not_kept(self):
        other = changed(hardware="other")
        before = self.with_boards(a=("1", 1.0)).model_copy(update={"identity": other})
        assert set(keeping_boards(before, self.with_boards(b=("2", 3.0))).boards) == {"b"}
        assert set(keeping_boards(None, self.with_boards(b=("2", 3.0))).boards) == {"b"}

    def test_a_figure_that_is_not_a_boards_takes_no_portable_ones_place(self):
        stored = self.with_boards(a=("1", 1.0))
        planted = stored.boards["a"].model_copy(update={"metrics": {"tpot": record(value=9.0)}})
        stored = stored.model_copy(update={"boards": {"a": planted}})
        assert stored.summaries("a")["tpot"].value == 1.1
        assert stored.of_other_boards("b") == ("a", {})

    def test_a_file_from_before_boards_were_kept_is_loaded(self, tmp_path):
        path = written(tmp_path / "x.json", lambda content: content.pop("boards"))
        assert load(path).boards == {}

    def test_a_number_that_is_none_is_refused_there_too(self, tmp_path):
        store(tmp_path / "x.json", self.with_boards(a=("1", 1.0)))
        path = tmp_path / "x.json"
        path.write_text(path.read_text().replace('"value": 1.0', '"value": -1.0'))
        with pytest.raises(BaselineError, match=r"boards\.a\.metrics\.tpj\.value"):
            load(path)

    def test_a_baseline_of_boards_figures_alone_has_its_launches_too(self):
        stored = self.with_boards(a=("1", 1.0)).model_copy(update={"metrics": {}})
        assert stored.launches == 2
