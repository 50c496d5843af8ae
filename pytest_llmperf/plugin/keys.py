"""Where the plugin keeps its state: in pytest's stashes, under these keys."""

from __future__ import annotations

import pytest

__all__ = ["RECORDER", "SESSION", "STATE"]

#: Of the config: the measuring process's session; absent where nothing is measured.
SESSION = pytest.StashKey["LlmperfSession"]()
#: Of the config: what collects the records and writes the report.
RECORDER = pytest.StashKey["Recorder"]()
#: Of an item: what was measured for it so far, over all launches.
STATE = pytest.StashKey["TestState"]()
