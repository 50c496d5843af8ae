"""A small suite on the simulated engine, and a way to run it."""

import json
import os
import shutil
from functools import cache
from pathlib import Path

import pytest

from .quick import SHORTER

SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_decode(llmperf, batch):
    llmperf.check(Workload(input_len=4, output_len=4, batch=batch))
"""


class Suite:
    """Runs pytest on files in a folder of its own."""

    def __init__(self, pytester, kept):
        self.pytester = pytester
        self._kept = kept
        self.folder = pytester.path
        # Counted by the engine pool itself, printed by a plugin of the suite's.
        pytester.makeconftest(
            """
            def pytest_unconfigure(config):
                from pytest_llmperf.plugin.keys import SESSION
                session = config.stash.get(SESSION, None)
                if session is not None:
                    print("engine starts:", session.pool.starts)
            """
        )

    def write(self, text=SUITE, name="test_suite"):
        self.pytester.makepyfile(**{name: text})

    def run(self, *arguments, engine="sim:h200"):
        self.results.unlink(missing_ok=True)
        return self.pytester.runpytest(
            f"--llmperf-engine={engine}", "--llmperf-report=report", "-p", "no:cacheprovider", *arguments
        )

    def save(self, *arguments, engine="sim:h200"):
        """Store baselines of the files as they are, or take those that an earlier test has stored likewise."""
        files = tuple((path.name, path.read_text()) for path in sorted(self.folder.glob("*.py")))
        stored, there = self._kept(files, arguments, engine), self.folder
        if not any(stored.iterdir()):
            assert self.run("--llmperf-save", *arguments, engine=engine).ret == 0
            stored, there = there, stored
        for name in ("baselines", "report"):
            shutil.copytree(stored / name, there / name, dirs_exist_ok=True)

    @property
    def results(self):
        return self.folder / "report" / "results.json"

    def records(self):
        return {t["nodeid"].partition("::")[2]: t for t in json.loads(self.results.read_text())["tests"]}


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """A folder for all tests of this process that store the same baselines."""
    return cache(lambda *what: tmp_path_factory.mktemp("kept"))


@pytest.fixture
def suite(pytester, kept):
    suite = Suite(pytester, kept)
    suite.write()
    return suite


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Inner sessions of this process look at the boards for a short time; others are given the plugin."""
    for module, name, value in SHORTER:
        if name != "_TRIES":
            monkeypatch.setattr(module, name, value)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
