"""``python -m pytest_llmperf baselines``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pytest_llmperf.__main__ import main
from pytest_llmperf.baselines import baseline_path, keeping_anchor, load, read, store

from .records import IDENTITY, baseline, record, written_as_1

LAUNCHES = tuple((1.0 + n / 100,) for n in range(5))
TODAY = datetime.now(UTC).isoformat(timespec="seconds")


def fine(test, **changes):
    update = {"test": test, "saved_at": TODAY, "provenance": {"engine": "vllm", "engine_version": "0.32.0"}, **changes}
    return baseline(tpot=record(*LAUNCHES)).model_copy(update=update)


def put(root, test="test_x.py::test_y[1]", **changes):
    path = baseline_path(root, IDENTITY, test)
    store(path, fine(test, **changes))
    return path


@pytest.fixture
def command(tmp_path, capsys):
    def run(*arguments, folder=tmp_path):
        code = main(["baselines", str(folder), *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out.splitlines(), err

    return run


def test_a_line_says_what_a_file_is(command, tmp_path):
    put(tmp_path)
    code, (heading, line, total), _ = command()
    assert code == 0
    assert heading == "nvidia-h200/mistral-7b@unlocked: test_x.py"
    assert line.strip().split("  ") == ["test_y[1]", "5 launches", TODAY[:10], "vllm 0.32.0"]
    assert total == "1 baseline, 0 with problems"


def test_the_anchors_date_stands_in_it(command, tmp_path):
    path = put(tmp_path)
    store(path, keeping_anchor(fine("test_x.py::test_y[1]", saved_at="2026-01-02"), load(path)))
    assert command()[1][1].endswith("anchor of 2026-01-02")


def few(path):
    store(path, load(path).model_copy(update={"metrics": {"tpot": record(*LAUNCHES[:3])}}))


def edited(path):
    path.write_text(path.read_text().replace("1.04", "1.05"))


def aged(path):
    then = datetime.now(UTC) - timedelta(days=91)
    store(path, load(path).model_copy(update={"saved_at": then.isoformat()}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (few, "3 launches"),
        (aged, "91 days ago"),
        (edited, "digest"),
        (lambda path: path.write_text("{"), "unusable"),
        (lambda path: path.write_bytes(b"\xff"), "cannot be read"),
        (lambda path: path.write_text("{\n<<<<<<< ours\n=======\n>>>>>>> theirs\n}"), "it holds merge markers"),
        (lambda path: path.rename(path.parent / "test_z.json"), "its place is nvidia-h200/mistral-7b@unlocked/test_x/"),
        (lambda path: written_as_1(path, lambda b: b.update(test="test_x.py::test_y[1]")), "--migrate"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_and_is_no_success(command, tmp_path, damage, said):
    put(tmp_path, "test_x.py::test_good")
    damage(put(tmp_path))
    code, lines, _ = command()
    assert code == 1
    told = " ".join(" ".join(lines).split())
    assert "problem: " in told
    assert said in told.partition("problem: ")[2]
    assert lines[-1] == "2 baselines, 1 with problems"


def test_what_is_wrong_with_several_is_told_once(command, tmp_path):
    for batch in (1, 2, 4):
        few(put(tmp_path, f"test_x.py::test_y[{batch}]"))
    put(tmp_path, "test_x.py::test_good")
    _, lines, _ = command()
    assert [line.split("  ")[-1] for line in lines if "test_y[" in line] == ["problem 1"] * 3
    assert not any("problem" in line for line in lines if "test_good" in line)
    assert sum("noise is hardly known" in line for line in lines) == 1
    assert any(line.startswith("problem 1, of 3 baselines: The baseline is of 3 launches") for line in lines)


def test_lines_fit_80_columns_and_tests_of_one_file_stand_below_its_name(command, tmp_path):
    for name in ("test_a_name_of_ordinary_length[512-256-16]", "test_y", "test_" + "x" * 90):
        few(put(tmp_path, f"suites/performance/test_{name[5]}.py::{name}", saved_at="2026-01-02T00:00:00+00:00"))
    aged(put(tmp_path, "suites/performance/test_a.py::test_z"))
    _, lines, _ = command()
    assert all(len(line) <= 80 for line in lines if "x" * 90 not in line)
    assert sum(line.endswith("suites/performance/test_a.py") for line in lines) == 1


def test_age_is_no_problem_where_none_is_asked_for(command, tmp_path):
    aged(put(tmp_path))
    assert command("--max-age=0")[0] == 0


def test_a_folder_that_is_none_or_holds_none_is_an_error(command, tmp_path):
    assert command()[0] == 1
    assert "holds no baselines" in command()[2]
    code, _, error = command(folder=tmp_path / "missing")
    assert (code, "is no folder" in error) == (1, True)


def test_old_versions_are_rewritten_in_place(command, tmp_path):
    new, old = put(tmp_path), tmp_path / "old.json"
    before = new.read_bytes()
    content = load(written_as_1(old))
    _, lines, _ = command("--migrate")
    assert lines[-1] == "2 baselines, 1 with problems, 1 rewritten"
    assert " ".join(" ".join(lines).split()).count("vouches for what stands there now. Review the difference.") == 1
    assert not any("vouches" in line for line in command("--migrate")[1])
    assert read(old) == (content, 2)
    assert new.read_bytes() == before


def test_what_cannot_be_read_is_left_as_it_is(command, tmp_path):
    path = put(tmp_path)
    edited(path)
    before = path.read_bytes()
    assert command("--migrate", "--pin")[0] == 1
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("pattern", "pinned"),
    [
        (None, ["[1]", "[16]"]),
        ("test_x.py::test_y[1]", ["[1]"]),
        ("test_y[1]", ["[1]"]),
        ("*[1?]", ["[16]"]),
        ("test_y*", ["[1]", "[16]"]),
    ],
)
def test_present_content_becomes_the_anchor_of_the_tests_that_are_meant(command, tmp_path, pattern, pinned):
    paths = {name: put(tmp_path, f"test_x.py::test_y{name}") for name in ("[1]", "[16]")}
    for path in paths.values():
        store(path, keeping_anchor(load(path), load(path)))
    code, lines, _ = command("--pin", *([] if pattern is None else ["--test", pattern]))
    assert (code, lines[-1]) == (0, f"{len(pinned)} baseline{'s' if len(pinned) > 1 else ''}, 0 with problems, "
                                    f"{len(pinned)} rewritten")  # fmt: skip
    assert [name for name, path in paths.items() if load(path).anchor is None] == pinned


def test_a_pattern_that_matches_nothing_is_an_error(command, tmp_path):
    put(tmp_path)
    code, _, error = command("--pin", "--test", "test_z*")
    assert (code, "'test_z*'" in error) == (1, True)


def test_a_folder_that_cannot_be_written_is_an_error_with_the_file(command, tmp_path, monkeypatch):
    path = written_as_1(tmp_path / "old.json")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, error = command("--migrate")
    assert (code, "old.json cannot be written" in error) == (1, True)
    assert path.read_bytes() == before


def test_control_characters_of_a_test_do_not_reach_the_terminal(command, tmp_path):
    put(tmp_path, "test_x.py::test_y[\x1b[2J]")
    _, lines, _ = command()
    assert all(line.isprintable() for line in lines)


def test_the_committed_baselines_are_of_the_present_version_and_in_their_places(command):
    _, lines, _ = command("--max-age=0", folder=Path(__file__).parents[2] / "baselines")
    problems = [line for line in lines if line.lstrip().startswith("problem")]
    assert all("launch" in line for line in problems)
