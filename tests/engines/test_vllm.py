"""Real vLLM on its CPU build: the main job, its failures, and what is left behind.

An engine start takes 15 s or more, so each test shows several things.
"""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import psutil
import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: pip install 'pytest-llmperf[cpu]'"),
    pytest.mark.timeout(600),
]

SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("batch", [1, 4])
def test_decode(llmperf, batch):
    llmperf.check(Workload(input_len=1, output_len=32, batch=batch))

def test_prefill(llmperf):
    llmperf.check(Workload(input_len=256, output_len=1))

def test_loop(llmperf):
    run = llmperf.check(Workload(input_len=16, output_len=16, concurrency=4, requests=16))
    assert run.metrics.request_throughput.value > 0
"""


@pytest.fixture
def vllm(pytester, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    pytester.makepyfile(SUITE)

    def run(*arguments, engine="vllm,enforce_eager=true"):
        result = pytester.runpytest_subprocess(
            f"--llmperf-engine={engine}", "--llmperf-report=report", "--llmperf-repeats=2", "-p", "no:cacheprovider",
            "-o", "llmperf_tolerance=2000%", *arguments,
        )  # fmt: skip

        assert not engine_processes(pytester.path), "a process of the engine outlived the session"
        return result

    return run


def engine_processes(folder):
    """Every process of a vLLM engine that a session in this folder has started: they give themselves titles so."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline", "cwd"])
        if " ".join(process.info["cmdline"] or ()).startswith("VLLM::") and process.info["cwd"] == str(folder)
    ]


def records(pytester):
    return {
        t["nodeid"].partition("::")[2]: t
        for t in json.loads((pytester.path / "report/results.json").read_text())["tests"]
    }


def test_measure_save_and_gate(vllm, pytester):
    saved = vllm("--llmperf-save", "--llmperf-launches=2")
    saved.assert_outcomes(passed=4)
    assert len(list((pytester.path / "report/logs").glob("engine-*.log"))) == 2, "two launches start two engines"

    # What a busy processor's noise decides is not the matter here.
    gated = vllm("--llmperf-launches=2", "--llmperf-inconclusive=warn")
    gated.assert_outcomes(passed=4)
    tests = records(pytester)
    assert len(tests) == 4
    decode = tests["test_decode[4]"]
    assert (decode["engine"]["kind"], decode["engine"]["simulated"]) == ("vllm", False)
    assert decode["engine"]["treatment"] == {"enforce_eager": True}
    limits = decode["engine"]["limits"]
    assert limits.keys() == {"max_num_seqs", "max_num_batched_tokens", "block_size", "num_gpu_blocks"}
    assert f"cache size: {limits['num_gpu_blocks'] * limits['block_size']:,} tokens" in "".join(
        log.read_text() for log in (pytester.path / "report/logs").glob("engine-*.log")
    )
    # 4 requests of 32 tokens, twice a launch; what the server counted.
    assert decode["requests"]["output_tokens"] == 4 * 32 * 2 * len(decode["metrics"]["tpot"]["launches"])
    assert decode["requests"]["token_source"] == "server"
    assert {v["metric"]: v["verdict"] for v in decode["verdicts"]}["tpot"] in ("pass", "improved", "inconclusive")
    assert tests["test_prefill"]["metrics"]["tpot"]["reason"]
    # Both ends of the overhead are stamps of one clock: the client cannot see a token before the engine had it.
    overhead = decode["client_overhead"]
    assert overhead["first_token_p50"] > 0
    assert 0.5 < overhead["tpot_ratio"] < 2
    traces = (pytester.path / "report/traces").glob("*.jsonl")
    assert len(list(traces)) == 4


@pytest.mark.parametrize(
    ("engine", "environment", "sentence"),
    [
        ("vllm,max_modl_len=64", {}, "*no engine argument 'max_modl_len'*Did you mean 'max_model_len'*"),
        ("vllm,max_model_len=99999", {}, "*max_model_len (99999) is greater*"),
        ("vllm,dtype=float17", {}, "*did not start*float17*"),
        ("vllm,enforce_eager=true", {"VLLM_CPU_KVCACHE_SPACE": "9999"}, "*Available memory*VLLM_CPU_KVCACHE_SPACE*"),
    ],
)
def test_a_start_that_fails_gives_vllms_root_cause_in_one_sentence(
    vllm, pytester, monkeypatch, engine, environment, sentence
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = vllm(engine=engine)
    assert result.ret in (1, 4)
    (
        result.stdout if result.ret == 1 else result.stderr if "no engine" not in result.stdout.str() else result.stdout
    ).fnmatch_lines([sentence])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_survives_an_interrupted_run(pytester, monkeypatch, number):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    pytester.makepyfile(
        """
        from pathlib import Path
        from pytest_llmperf import Workload
        def test_first(llmperf):
            llmperf.measure(Workload(4, 4))
            Path("measured").touch()
        def test_long(llmperf):
            llmperf.measure(Workload(4, 1000, batch=8, requests=8000))
        """
    )
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--llmperf-engine=vllm,enforce_eager=true",
        "--llmperf-report=report",
    ]  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=_heed_interrupts
    )
    try:
        wait_for(lambda: (pytester.path / "measured").exists() or process.poll() is not None)
        assert process.poll() is None
        family = psutil.Process(process.pid).children(recursive=True)
        assert set(engine_processes(pytester.path)) & {p.pid for p in family}
        time.sleep(1)
        os.kill(process.pid, number)
        output, _ = process.communicate(timeout=240)
        wait_for(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in family))
        assert not engine_processes(pytester.path)
    finally:
        for left in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []:
            left.kill()
        process.kill()
    if number != signal.SIGKILL:
        assert process.returncode == 2, output
        assert (pytester.path / "report/results.json").exists()


def _heed_interrupts():
    # A test run started in the background of a shell has Ctrl-C ignored, and hands that on.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_for(condition, seconds=240):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
