from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.baselines import (
    Baseline,
    as_records,
    baseline_path,
    differing,
    load,
    of_group,
    read,
    read_all,
    store,
)
from pytest_llmperf.baselines.migration import MIGRATIONS
from pytest_llmperf.errors import BaselineError
from pytest_llmperf.gate import PASSING, compare
from pytest_llmperf.metrics import REGISTRY, Context, Summary, summarize
from tests.fakes import repeat, request

from .records import IDENTITY, TEST, baseline, changed, record, written, written_as_1


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
            (lambda b: b.update(schema_version=0), "schema_version"),
            (lambda b: b.update(schema_version=True), "schema_version"),
            (lambda b: b.update(schema_version="2"), "schema_version"),
            (lambda b: b.pop("schema_version"), "schema_version"),
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

    @pytest.mark.parametrize("bracket", ["[", '{"a":'])
    @pytest.mark.parametrize("where", ["{}", '{{"schema_version": 2, "workload": {}}}'])
    def test_a_file_that_is_nested_without_end_is_refused_by_name(self, tmp_path, bracket, where):
        (tmp_path / "x.json").write_text(where.format(bracket * 10_000))
        with pytest.raises(BaselineError, match=r"x\.json is unusable"):
            load(tmp_path / "x.json")

    @pytest.mark.parametrize("version", [1, 2])
    def test_deep_content_in_its_proper_place_is_refused_or_read(self, tmp_path, version):
        text = json.dumps(json.loads(baseline().model_dump_json(exclude={"anchor"})) | {"schema_version": version})
        text = text.replace('"batch": 1', f'"batch": {"[" * 10_000}{"]" * 10_000}')
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(BaselineError, match=r"x\.json is unusable"):
            load(tmp_path / "x.json")

    @pytest.mark.parametrize("number", ["1" * 5000, "9" * 400, "-" + "9" * 400, "1e400"])
    def test_a_number_that_no_float_can_hold_is_refused(self, tmp_path, number):
        path = written(tmp_path / "x.json", lambda b: b["metrics"]["tpot"].update(value="HERE"))
        path.write_text(path.read_text().replace('"HERE"', number))
        with pytest.raises(BaselineError, match=r"x\.json is unusable"):
            load(path)

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
    def test_what_is_no_json_is_refused_also_where_nothing_is_compared(self, tmp_path, number):
        path = written(tmp_path / "x.json", lambda b: b["provenance"].update(note="HERE"))
        path.write_text(path.read_text().replace('"HERE"', number))
        with pytest.raises(BaselineError, match=r"x\.json is unusable"):
            load(path)

    def test_a_key_that_stands_twice_is_refused_by_its_name(self, tmp_path):
        path = written(tmp_path / "x.json", lambda b: None)
        path.write_text(path.read_text().replace('"value": 1.1', '"value": 9.9, "value": 1.1'))
        with pytest.raises(BaselineError, match=r"x\.json is unusable: .*'value' stands in it twice"):
            load(path)

    def test_a_file_that_may_not_be_read_is_refused_by_name(self, tmp_path, monkeypatch):
        store(tmp_path / "x.json", baseline())

        def refused(*_, **__):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_text", refused)
        with pytest.raises(BaselineError, match=r"x\.json cannot be read .*Permission denied"):
            load(tmp_path / "x.json")

    def test_a_file_in_the_place_of_a_folder_is_refused_by_name(self, tmp_path):
        (tmp_path / "folder").write_text("")
        with pytest.raises(BaselineError, match=r"x\.json cannot be read"):
            load(tmp_path / "folder" / "x.json")

    @given(st.binary(max_size=300))
    def test_any_bytes_are_refused_by_name(self, tmp_path_factory, content):
        path = tmp_path_factory.mktemp("any") / "x.json"
        path.write_bytes(content)
        with pytest.raises(BaselineError, match=r"x\.json"):
            load(path)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
        st.sampled_from(["metrics", "identity", "test", "saved_at", "boards", "anchor", "schema_version", "digest"]),
    )
    def test_anything_in_the_place_of_a_field_is_refused_or_read_and_nothing_else(self, tmp_path_factory, value, key):
        path = written(tmp_path_factory.mktemp("any") / "x.json", lambda b: b.update({key: "HERE"}))
        path.write_text(path.read_text().replace('"HERE"', json.dumps(value)))
        try:
            assert isinstance(load(path), Baseline)
        except BaselineError as error:
            assert "x.json" in error.problem  # noqa: PT017  # either way is right


class TestDigest:
    @pytest.mark.parametrize(
        "edit",
        [
            lambda b: b["metrics"]["tpot"].update(value=1.2),
            lambda b: b["metrics"]["tpot"]["launches"][0].append(1.0),
            lambda b: b["metrics"].update(ttft=b["metrics"]["tpot"]),
            lambda b: b["identity"].update(hardware="NVIDIA H100"),
            lambda b: b["provenance"].update(dirty=False),
            lambda b: b.update(saved_at="2026-11-30T00:00:00+00:00"),
            lambda b: b.update(anchor=None, test="another"),
            lambda b: b.pop("digest"),
            lambda b: b.update(digest=None),
            lambda b: b.update(digest="0" * 64),
        ],
    )
    def test_an_edit_by_hand_is_refused_with_the_file_and_what_mends_it(self, tmp_path, edit):
        path = written(tmp_path / "x.json", edit, digest=False)
        with pytest.raises(BaselineError, match=r"x\.json is unusable: digest: .*edited") as refused:
            load(path)
        assert "version control" in refused.value.remedy
        assert "--llmperf-save" in refused.value.remedy

    def test_another_layout_of_the_same_content_is_no_edit(self, tmp_path):
        path = tmp_path / "x.json"
        store(path, baseline())
        content = json.loads(path.read_text())
        text = json.dumps(dict(reversed(content.items())), indent="\t").replace("700.0", "700").replace("\n", "\r\n")
        path.write_bytes(text.encode())
        assert load(path) == baseline()

    @given(st.dictionaries(st.text(), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
    def test_what_is_stored_has_its_digest_whatever_the_provenance_says(self, tmp_path_factory, provenance):
        path = tmp_path_factory.mktemp("any") / "x.json"
        before = baseline().model_copy(update={"provenance": provenance})
        store(path, before)
        assert load(path) == before


class TestDigits:
    def test_seven_of_them_are_stored(self, tmp_path):
        store(tmp_path / "x.json", baseline(tpot=record((0.00123456789, 123456789.0), value=0.1 + 0.2)))
        stored = load(tmp_path / "x.json").metrics["tpot"]
        assert stored.launches == ((0.001234568, 123456800.0),)
        assert stored.value == 0.3

    @given(st.floats(min_value=0, allow_nan=False, allow_infinity=False))
    def test_what_was_rounded_once_stays(self, value):
        once = record((value,)).launches
        assert record(*once).launches == once
        assert once[0][0] == pytest.approx(value, rel=1e-6)


class TestVersions:
    def test_one_of_version_1_is_read_and_left_as_it_is(self, tmp_path):
        path = written_as_1(tmp_path / "x.json")
        before = path.read_bytes()
        assert read(path) == (baseline(), 1)
        assert path.read_bytes() == before

    def test_it_is_of_the_present_version_when_stored_again(self, tmp_path):
        store(tmp_path / "x.json", load(written_as_1(tmp_path / "x.json")))
        assert read(tmp_path / "x.json") == (baseline(), 2)

    def test_its_numbers_are_checked_as_well(self, tmp_path):
        path = written_as_1(tmp_path / "x.json", lambda b: b["metrics"]["tpot"].update(value=-1))
        with pytest.raises(BaselineError, match=r"x\.json is unusable: .*tpot.*value"):
            load(path)

    def test_a_newer_one_is_refused_and_says_what_reads_it(self, tmp_path):
        path = written(tmp_path / "x.json", lambda b: b.update(schema_version=3, metrics="of another kind"))
        with pytest.raises(BaselineError, match=r"x\.json .*schema_version 3, and .* reads up to 2\..*Install"):
            load(path)

    def test_every_version_before_the_present_one_has_a_step(self):
        assert sorted(MIGRATIONS) == list(range(1, Baseline.model_fields["schema_version"].default))


class TestMany:
    def test_all_files_are_read_and_the_unusable_ones_say_why(self, tmp_path):
        (tmp_path / "a").mkdir()
        store(tmp_path / "a" / "good.json", baseline())
        (tmp_path / "a" / "bad.json").write_text("{")
        (tmp_path / "a" / "README.md").write_text("no baseline")
        (bad, error), (good, found) = read_all(tmp_path)
        assert (bad.name, good.name, found) == ("bad.json", "good.json", baseline())
        assert isinstance(error, BaselineError)
        assert read_all(tmp_path / "missing") == []

    def test_a_group_shares_everything_but_the_workload(self, tmp_path):
        def put(test, **changes):
            identity = changed(**changes)
            path = baseline_path(tmp_path, identity, test)
            store(path, baseline().model_copy(update={"identity": identity, "test": test}))

        put(TEST)
        put("suites/test_phases.py::test_prefill", workload="another")
        put("suites/test_phases.py::test_fp8", quantization="fp8")
        put("suites/test_phases.py::test_held", clock_mhz=900)
        baseline_path(tmp_path, IDENTITY, "suites/test_phases.py::broken").write_text("[")
        group = of_group(tmp_path, changed(workload="of no test"))
        assert [one.test.partition("::")[2] for one in group] == ["test_decode[8]", "test_prefill"]
        assert of_group(tmp_path / "missing", IDENTITY) == []
