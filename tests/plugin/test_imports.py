"""Every pytest session of every user with the plugin installed pays for its import."""

import subprocess
import sys

HEAVY = ("vllm", "torch", "pynvml", "altair", "pydantic", "numpy", "scipy", "jinja2", "asyncio")


def loaded_after(statement):
    code = f"import sys, pytest, _pytest.runner, _pytest.outcomes\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_plugin_imports_nothing_heavy():
    assert not loaded_after("import pytest_llmperf.plugin").intersection(HEAVY)


def test_the_public_names_are_handed_on_lazily():
    assert "pytest_llmperf.workload" not in loaded_after("import pytest_llmperf")
    assert "pytest_llmperf.workload" in loaded_after("from pytest_llmperf import Workload")


def test_a_whole_session_without_performance_tests_imports_nothing_heavy(pytester):
    pytester.makepyfile("import sys\ndef test_nothing(): print('loaded:', *sys.modules)")
    result = pytester.runpytest_subprocess("-s", "-p", "no:benchmark", "-p", "no:anyio", "-p", "no:hypothesispytest")
    line = next(line for line in result.stdout.lines if "loaded:" in line)
    assert not set(line.split()).intersection(HEAVY[:-1])
    assert not [name for name in line.split() if name.startswith("pytest_llmperf.simulation")]


def test_importing_the_vllm_engine_does_not_import_vllm():
    assert not loaded_after("import pytest_llmperf.engines.vllm").intersection({"vllm", "torch"})
