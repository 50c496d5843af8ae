from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import baselines
from pytest_llmperf.baselines import (
    Baseline,
    BoardRecord,
    Identity,
    MetricRecord,
    as_records,
    baseline_path,
    differing,
    find_elsewhere,
    keeping_boards,
    load,
    slug,
    store,
)
from pytest_llmperf.errors import BaselineError
from pytest_llmperf.gate import PASSING, compare
from pytest_llmperf.metrics import REGISTRY, Context, Summary, summarize

from .fakes import repeat, request

IDENTITY = Identity(
    hardware="NVIDIA H200",
    device_count=1,
    power_limit_w=700.0,
    simulated=False,
    clock_mhz=None,
    model="mistral-7b",
    model_digest="0123456789ab",
    dtype="bfloat16",
    quantization=None,
    kv_cache_dtype="auto",
    tensor_parallel_size=1,
    pipeline_parallel_size=1,
    workload="932fc667e491aeaf",
)
TEST = "suites/test_phases.py::test_decode[8]"
RESERVED = {"con", "prn", "aux", "nul", "com1", "lpt9"}


def changed(**changes):
    return IDENTITY.model_copy(update=changes)


def baseline(**metrics):
    return Baseline(
        schema_version=1,
        test=TEST,
        saved_at="2026-01-02T03:04:05+00:00",
        identity=IDENTITY,
        workload={"batch": 1},
        provenance={"engine": "vllm"},
        metrics=metrics or {"tpot": record()},
    )


def record(*launches, **changes):
    fields = {"unit": "s", "better": "lower", "launches": launches or ((1.0, 1.1), (1.2,)), "value": 1.1}
    return MetricRecord(**fields | changes)


def written(path: Path, change) -> Path:
    content = json.loads(baseline().model_dump_json())
    change(content)
    path.write_text(json.dumps(content))
    return path


class TestStored:
    def test_what_is_stored_is_loaded_again(self, tmp_path):
        before = baseline(tpot=record(), tpj=record(launches=(), value=None, reason="no GPU"))
        store(tmp_path / "a" / "b.json", before)
        assert load(tmp_path / "a" / "b.json") == before

    def test_one_from_before_memory_clocks_were_held_is_comparable(self, tmp_path):
        path = written(tmp_path / "x.json", lambda b: b["identity"].pop("memory_clock_mhz"))
        assert differing(load(path).identity, IDENTITY) == []

    def test_a_file_that_is_not_there_is_none(self, tmp_path):
        assert load(tmp_path / "x.json") is None

    def test_the_file_is_made_to_be_reviewed(self, tmp_path):
        store(tmp_path / "x.json", baseline())
        text = (tmp_path / "x.json").read_text()
        assert text.endswith("}\n")
        assert len(text.splitlines()) > 20

    def test_a_stored_record_gives_what_the_gate_compares(self):
        launches = [[repeat(request(10, 30)), repeat(request(10, 40))], [repeat(request(10, 50))]]
        measured = {name: summarize(REGISTRY[name], launches, Context()) for name in ("tpot", "goodput")}
        records = as_records(REGISTRY, measured)
        assert records["tpot"].unit == "s"
        assert records["tpot"].summary() == replace(measured["tpot"], percentiles=None)
        assert records["goodput"].summary() == measured["goodput"]


NO_NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", '"12"', "[]", "{}", "-0.001", "true", '"NaN"']


class TestUnusable:
    @pytest.mark.parametrize("value", [*NO_NUMBERS, "null"])
    def test_a_sample_that_is_no_number_is_refused_with_the_file(self, tmp_path, value):
        path = written(tmp_path / "x.json", lambda b: b["metrics"]["tpot"].update(launches=[[1.0, "HERE"]]))
        path.write_text(path.read_text().replace('"HERE"', value))
        with pytest.raises(BaselineError, match=r"x\.json is unusable: .*tpot.*launches") as refused:
            load(path)
        assert "--llmperf-save" in str(refused.value)

    @pytest.mark.parametrize("value", NO_NUMBERS)
    def test_a_value_that_is_no_number_is_refused_with_the_file(self, tmp_path, value):
        path = written(tmp_path / "x.json", lambda b: b["metrics"]["tpot"].update(value="HERE"))
        path.write_text(path.read_text().replace('"HERE"', value))
        with pytest.raises(BaselineError, match=r"x\.json is unusable: .*tpot.*value"):
            load(path)

    @pytest.mark.parametrize("launches", [None, 1.0, [1.0], [None], {}, "12"])
    def test_launches_of_another_shape_are_refused_with_the_file(self, tmp_path, launches):
        path = written(tmp_path / "x.json", lambda b: b["metrics"]["tpot"].update(launches=launches))
        with pytest.raises(BaselineError, match=r"x\.json is unusable: .*launches"):
            load(path)

    @pytest.mark.parametrize(
        "metric",
        [
            {"launches": [[0.0]]},
            {"launches": [[0]], "value": 0},
            {"launches": []},
            {"launches": [[]]},
            {"launches": [[1.0], []]},
            {"launches": [], "value": None, "reason": None},
            {"launches": [[1.0]], "value": None, "reason": "no GPU"},
        ],
    )
    @pytest.mark.parametrize("current", [Summary(1.0, ((1.0,),), None, None), Summary(None, (), None, "one token")])
    def test_what_can_be_loaded_and_holds_nothing_to_compare_never_passes(self, tmp_path, metric, current):
        path = written(tmp_path / "x.json", lambda b: b["metrics"]["tpot"].update(metric))
        stored = load(path).metrics["tpot"].summary()
        assert compare("tpot", stored, current, better="lower", tolerance=9).verdict not in PASSING

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            (lambda b: b.pop("metrics"), "metrics"),
            (lambda b: b.pop("identity"), "identity"),
            (lambda b: b["identity"].pop("hardware"), "hardware"),
            (lambda b: b["identity"].update(device_count=0), "device_count"),
            (lambda b: b["identity"].update(device_count="1"), "device_count"),
            (lambda b: b["identity"].update(temperature=40), "temperature"),
            (lambda b: b.update(schema_version=2), "schema_version"),
            (lambda b: b["metrics"]["tpot"].update(better="faster"), "better"),
            (lambda b: b["metrics"]["tpot"].pop("unit"), "unit"),
        ],
    )
    def test_another_shape_is_refused_with_the_field(self, tmp_path, change, named):
        path = written(tmp_path / "x.json", change)
        with pytest.raises(BaselineError, match=rf"x\.json is unusable: .*{named}"):
            load(path)

    @pytest.mark.parametrize("text", ["", "{", "null", "[]", "12", '"text"', "<<<<<<< HEAD\n{}\n=======\n"])
    def test_a_file_that_is_no_record_is_refused_by_name(self, tmp_path, text):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(BaselineError, match=r"x\.json is unusable"):
            load(tmp_path / "x.json")

    @given(cut=st.floats(0, 1, exclude_max=True))
    def test_a_truncated_file_is_refused_wherever_it_ends(self, tmp_path_factory, cut):
        path = tmp_path_factory.mktemp("cut") / "x.json"
        store(path, baseline())
        text = path.read_text().rstrip()
        path.write_text(text[: int(cut * len(text))])
        with pytest.raises(BaselineError, match=r"x\.json is unusable"):
            load(path)

    def test_bytes_that_are_no_text_are_refused_by_name(self, tmp_path):
        (tmp_path / "x.json").write_bytes(b"\xff\xfe{}")
        with pytest.raises(BaselineError, match=r"x\.json cannot be read"):
            load(tmp_path / "x.json")

    def test_a_folder_in_the_place_of_the_file_is_refused_by_name(self, tmp_path):
        (tmp_path / "x.json").mkdir()
        with pytest.raises(BaselineError, match=r"x\.json cannot be read"):
            load(tmp_path / "x.json")

    def test_a_file_in_the_place_of_the_folder_means_there_is_no_baseline_to_write(self, tmp_path):
        (tmp_path / "folder").write_text("")
        with pytest.raises(BaselineError, match=r"x\.json cannot be written") as refused:
            store(tmp_path / "folder" / "x.json", baseline())
        assert "--llmperf-baselines" in str(refused.value)

    def test_a_failing_disk_leaves_the_old_baseline(self, tmp_path, monkeypatch):
        path = tmp_path / "x.json"
        store(path, baseline())
        before = path.read_bytes()

        def full(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        with pytest.raises(BaselineError, match=r"x\.json cannot be written .*No space left"):
            store(path, baseline(ttft=record()))
        assert path.read_bytes() == before

    @pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
    def test_a_value_that_no_baseline_may_hold_cannot_be_put_into_one(self, value):
        with pytest.raises(ValueError, match="launches"):
            record((1.0, value))


AWKWARD = [
    "a/b", "a:b", "a_b", "a-b", "a b", "a|b", "a*b", "a\\b", "a#b", "a?b", 'a"b', "a'b", "a<b>", "a::b", "a", "A",
    "a.", "a..", "-a", "a\nb", "a\rb", "a\tb", "a\0b", "x", "X", "./x", "../x", "../../x", ".", "..", "", "-", "~",
    "$HOME", "%PATH%", "C:\\x", "é", "è", "e\u0301", "试", "\N{PILE OF POO}", "\ud800", "n" * 300, "n" * 299,
    "N" * 300, "é" * 300, "CON", "con", "Con", "con.json", "nul.x", "COM1", "com1", "LPT9", "[1-2]", "[1_2]",
    "test_x[1,2]", "test_x[1;2]", "x.json", "x.py",
]  # fmt: skip


def path_of(test):
    return baseline_path(Path("/base"), IDENTITY, test)


class TestNames:
    @pytest.mark.parametrize("place", ["tests/test_x.py::{}", "{}", "tests/{}::test_x", "tests/test_x.py::Test::{}"])
    def test_awkward_ids_lie_in_files_of_their_own(self, place):
        # As the path of a test file, these are other ways to write "x" and "".
        same = () if ".py::" in place else ("x.py", "./x", ".")
        names = [name for name in AWKWARD if name not in same]
        assert len({str(path_of(place.format(name))).lower() for name in names}) == len(names)

    @pytest.mark.parametrize("place", ["tests/test_x.py::{}", "{}", "{}::test_x"])
    @pytest.mark.parametrize("name", AWKWARD)
    def test_awkward_ids_lie_inside_the_folder_under_names_that_any_system_takes(self, place, name):
        self.check(path_of(place.format(name)))

    @given(st.text())
    def test_any_id_lies_inside_the_folder_under_names_that_any_system_takes(self, name):
        self.check(path_of(name))

    def check(self, path):
        within = path.relative_to("/base")
        assert within.suffix == ".json"
        for part in within.parts:
            assert part.isascii()
            assert part.isprintable()
            assert 0 < len(part) <= 255
            assert not set(part) & set('/\\:*?"<>|')
            assert part.strip(" .") == part
            assert part.partition(".")[0].lower() not in RESERVED

    @given(st.text(), st.text())
    def test_two_names_have_two_slugs_also_where_case_is_ignored(self, one, other):
        assert (slug(one).lower() == slug(other).lower()) == (one == other)

    @given(st.text())
    def test_a_name_cannot_be_chosen_to_hit_the_slug_of_another(self, name):
        assert slug(slug(name)) != slug(name) or slug(name) == name

    @pytest.mark.parametrize("name", ["test_decode[8]", "test_decode[b=8-in+out]", "test_x", "test_x[a.b]"])
    def test_a_plain_name_is_its_own_slug(self, name):
        assert slug(name) == name

    def test_the_name_of_a_file_never_changes(self):
        assert slug("test_x[A]") == "test_x[a]-ebb68795"

    def test_awkward_ids_can_be_stored_and_loaded(self, tmp_path):
        tests = [f"tests/test_x.py::{name}" for name in AWKWARD if name != "\ud800"]
        for test in tests:
            store(baseline_path(tmp_path, IDENTITY, test), baseline().model_copy(update={"test": test}))
        for test in tests:
            assert load(baseline_path(tmp_path, IDENTITY, test)).test == test

    @pytest.mark.parametrize(
        ("changes", "folders"),
        [
            ({}, "nvidia-h200/mistral-7b@unlocked"),
            ({"clock_mhz": 900}, "nvidia-h200/mistral-7b@900mhz"),
            ({"clock_mhz": 900, "memory_clock_mhz": 2619}, "nvidia-h200/mistral-7b@900mhz-memory2619mhz"),
            ({"memory_clock_mhz": 2619}, "nvidia-h200/mistral-7b@unlocked-memory2619mhz"),
            ({"device_count": 4}, "nvidia-h200-x4/mistral-7b@unlocked"),
            ({"simulated": True}, "simulated-nvidia-h200/mistral-7b@unlocked"),
            ({"model": "meta-llama/Llama-3.1-8B"}, "nvidia-h200/meta-llama-llama-3.1-8b@unlocked"),
            ({"hardware": "../..", "model": "../../etc"}, "x/etc@unlocked"),
            ({"hardware": "H" * 400, "model": "m" * 400}, f"{'h' * 100}/{'m' * 100}@unlocked"),
        ],
    )
    def test_hardware_model_and_clock_are_folders(self, changes, folders):
        path = baseline_path(Path("/base"), changed(**changes), TEST)
        assert path == Path("/base") / folders / "suites" / "test_phases" / "test_decode[8].json"


class TestIdentity:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("hardware", "NVIDIA H100"),
            ("device_count", 2),
            ("power_limit_w", 350.0),
            ("simulated", True),
            ("clock_mhz", 900),
            ("memory_clock_mhz", 2619),
            ("model", "tiny-llama"),
            ("model_digest", "ffffffffffff"),
            ("dtype", "float16"),
            ("quantization", "fp8"),
            ("kv_cache_dtype", "fp8"),
            ("tensor_parallel_size", 2),
            ("pipeline_parallel_size", 2),
            ("workload", "0000000000000000"),
        ],
    )
    def test_a_field_that_differs_is_named_with_both_values(self, name, value):
        before = getattr(IDENTITY, name)
        assert differing(IDENTITY, changed(**{name: value})) == [f"{name}: {before!r} in the baseline, {value!r} now"]

    def test_every_field_is_tried_above(self):
        marks = TestIdentity.test_a_field_that_differs_is_named_with_both_values.pytestmark
        assert {name for name, _ in marks[0].args[1]} == set(Identity.model_fields)

    def test_equal_identities_differ_in_nothing(self):
        assert differing(IDENTITY, changed()) == []

    def test_several_fields_are_all_named(self):
        assert len(differing(IDENTITY, changed(hardware="x", clock_mhz=1))) == 2


class TestElsewhere:
    def test_the_same_test_is_found_on_other_hardware_models_and_clocks(self, tmp_path):
        others = [changed(hardware="NVIDIA H100"), changed(model="tiny"), changed(clock_mhz=900)]
        for identity in others:
            store(baseline_path(tmp_path, identity, TEST), baseline())
        store(baseline_path(tmp_path, IDENTITY, "suites/test_phases.py::test_other"), baseline())
        assert find_elsewhere(tmp_path, TEST) == sorted(baseline_path(tmp_path, i, TEST) for i in others)

    def test_where_nothing_is_stored_nothing_is_found(self, tmp_path):
        assert find_elsewhere(tmp_path, TEST) == []
        assert find_elsewhere(tmp_path / "missing", TEST) == []


def test_the_module_hands_on_what_it_says():
    assert all(hasattr(baselines, name) for name in baselines.__all__)


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
