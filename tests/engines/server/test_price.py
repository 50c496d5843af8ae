"""One workload on vLLM in process and behind its server: the same work, and what HTTP adds to it.

The figures are printed for whoever reads the log; what is asserted does not depend on the machine's speed.
"""

import json
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed: pip install 'pytest-llmperf[cpu]'"),
    pytest.mark.timeout(600),
]

SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.parametrize("load", [{"batch": 4}, {"rate": 8, "requests": 16}], ids=["batch", "rate"])
def test_load(llmperf, load):
    llmperf.measure(Workload(input_len=64, output_len=32, seed=3, **load))
"""
COLUMNS = ("ttft", "tpot", "e2e_latency", "throughput")


@pytest.fixture
def measured(pytester, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")
    pytester.makepyfile(SUITE)

    def run(engine):
        result = pytester.runpytest_subprocess(
            f"--llmperf-engine={engine},enforce_eager=true", "--llmperf-report=report", "--llmperf-repeats=2",
            "-p", "no:cacheprovider",
        )  # fmt: skip
        assert result.ret == 0
        records = json.loads((pytester.path / "report" / "results.json").read_text())["tests"]
        return {record["nodeid"].rpartition("[")[2][:-1]: record for record in records}, result

    return run


def test_the_same_body_runs_in_process_and_over_http(measured, capsys):
    in_process, _ = measured("vllm")
    over_http, output = measured("serve")
    for load, ours in in_process.items():
        theirs = over_http[load]
        assert (ours["engine"]["kind"], theirs["engine"]["kind"]) == ("vllm", "serve")
        # The same work, by its digest and by every count.
        assert ours["workload"]["digest"] == theirs["workload"]["digest"]
        for name in ("sent", "completed", "failed", "output_tokens", "token_source", "chunk_tokens"):
            assert ours["requests"][name] == theirs["requests"][name], name
        assert theirs["requests"]["failed"] == 0
        assert theirs["requests"]["time_source"] == "kernel"
        # What the server says of the same time, warm-up excluded.
        (server,) = theirs["server"]
        assert server["requests"] == theirs["requests"]["sent"]
        assert server["generation_tokens"] == theirs["requests"]["output_tokens"]
        assert server["prompt_tokens"] == 64 * theirs["requests"]["sent"]
        assert server["preemptions"] == 0
        assert server["ttft_mean"] > 0
        (client,) = theirs["client"]
        assert client["requests"] == theirs["requests"]["sent"]
        assert client["calibration"]["first_p99"] > 0
    output.stdout.fnmatch_lines(["*by the server's metrics: means of TTFT*"])
    with capsys.disabled():
        print("\n" + side_by_side(in_process, over_http))


def side_by_side(in_process, over_http):
    lines = [f"{'':<8}{'':<14}" + "".join(f"{name:>14}" for name in COLUMNS)]
    for load in in_process:
        for where, records in (("in process", in_process), ("over HTTP", over_http)):
            values = [records[load]["metrics"][name]["value"] for name in COLUMNS]
            cells = "".join(f"{'-' if v is None else format(v, '.5g'):>14}" for v in values)
            lines.append(f"{load:<8}{where:<14}{cells}")
    return "\n".join(lines)
