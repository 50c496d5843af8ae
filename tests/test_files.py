from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_llmperf.files import write_atomically


def names(folder):
    return [path.name for path in folder.iterdir()]


def test_folders_are_made_and_the_text_is_there(tmp_path):
    path = tmp_path / "a" / "b" / "x.json"
    write_atomically(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert names(path.parent) == ["x.json"]


def test_the_file_can_be_read_by_others(tmp_path):
    write_atomically(tmp_path / "x", "text")
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_the_new_text_replaces_the_old(tmp_path):
    write_atomically(tmp_path / "x", "a long old text")
    write_atomically(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "new"


@pytest.mark.parametrize("step", ["replace", "chmod"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step, error):
    (tmp_path / "x").write_text("old")

    def fail(*_):
        raise error

    monkeypatch.setattr(Path, step, fail)
    with pytest.raises(type(error)):
        write_atomically(tmp_path / "x", "new")
    assert (tmp_path / "x").read_text() == "old"
    assert names(tmp_path) == ["x"]


def test_what_utf8_cannot_hold_is_escaped(tmp_path):
    write_atomically(tmp_path / "x", "half a surrogate pair: \ud800, é")
    assert (tmp_path / "x").read_text(encoding="utf-8") == "half a surrogate pair: \\ud800, é"
    assert names(tmp_path) == ["x"]


def test_a_kill_before_the_rename_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    program = (
        "import os, pathlib, signal, sys\n"
        "from pytest_llmperf.files import write_atomically\n"
        "pathlib.Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "write_atomically(pathlib.Path(sys.argv[1]), 'new')\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert killed.returncode == -9
    assert path.read_text() == "old"
    # What is left beside it is not taken for a record of anything.
    assert [p.name for p in tmp_path.glob("*.json")] == ["x.json"]


@pytest.mark.parametrize("inside", ["x", "folder/x"])
def test_a_folder_that_cannot_be_one_is_an_error(tmp_path, inside):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file" / inside, "text")
