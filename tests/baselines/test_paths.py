from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.baselines import baseline_path, find_elsewhere, load, slug, store

from .records import IDENTITY, TEST, baseline, changed

RESERVED = {"con", "prn", "aux", "nul", "com1", "lpt9"}
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
