"""Where the plugin keeps its state: in pytest's stashes, under these keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_llmperf.plugin.boards import SessionBoards
    from pytest_llmperf.plugin.recorder import Recorder
    from pytest_llmperf.plugin.session import LlmperfSession, TestState

__all__ = ["BOARDS", "RECORDER", "SESSION", "STATE"]

# The annotations are text, never evaluated: the modules are imported only when something is measured.
#: Of the config: the measuring process's session; absent where nothing is measured.
SESSION: pytest.StashKey[LlmperfSession] = pytest.StashKey()
#: Of the config: the boards that the session may use, and their clock.
BOARDS: pytest.StashKey[SessionBoards] = pytest.StashKey()
#: Of the config: what collects the records and writes the report.
RECORDER: pytest.StashKey[Recorder] = pytest.StashKey()
#: Of an item: what was measured for it so far, over all launches.
STATE: pytest.StashKey[TestState] = pytest.StashKey()
