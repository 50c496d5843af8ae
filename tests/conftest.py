from __future__ import annotations

from hypothesis import settings

# Machines that run tests are shared: how long an example takes says nothing about the code.
settings.register_profile("llmperf", deadline=None, database=None)
settings.load_profile("llmperf")

pytest_plugins = ["pytester"]
