"""Records of runs made by hand, as results.json keeps them."""

from pytest_llmperf.results import Results

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "a|b|c",
    "`code` ``more`` ```fence```",
    "**bold** _em_ ~~gone~~",
    "[link](http://evil.example) ![i](https://evil.example/p.png)",
    "@everyone @org/team a@b.example #1 org/repo#2",
    "www.evil.example <http://evil.example> http://evil.example",
    "line\nbreak\r\n# heading\n- item\n\n| a | b |\n|---|---|",
    "back\\slash \\| \\`",
    "\x1b[31m\x00\x07\u202e",
    "&lt;b&gt; &#64;x",
    "é漢字🙂",
    "x" * 300,
    "",
)

NOISE = {
    "sd": 0.006, "df": 34.0, "own_sd": 0.004, "own_df": 6, "pooled_sd": 0.0065, "pooled_df": 28.0, "tests": 11,
    "source": "pooled",
}  # fmt: skip
GATE = {
    "gated": 26, "family_alpha": 0.05, "pass_alpha": 0.05, "power": 0.8, "looks": [1, 2, 3, 4, 5, 6, 8], "launches": 8,
}  # fmt: skip
ENGINE = {
    "kind": "vllm", "version": "0.32.0", "model": "mistral-7b", "args": {}, "treatment": {}, "simulated": False,
    "device": "NVIDIA H200", "dtype": "bfloat16", "quantization": None, "kv_cache_dtype": "auto",
    "tensor_parallel_size": 1,
}  # fmt: skip
UNITS = {
    "ttft": ("s", "lower"), "tpot": ("s", "lower"), "e2e_latency": ("s", "lower"), "jpt": ("J/token", "lower"),
    "throughput": ("tokens/s", "higher"), "tpj": ("tokens/J", "higher"), "mbu": ("1", "higher"),
}  # fmt: skip


def metric(name, *launches, reason=None):
    """A metric with one value a launch; without any it was not measured."""
    unit, better = UNITS[name]
    ordered = sorted(launches)
    value = ordered[len(ordered) // 2] if ordered else None
    percentiles = None if value is None else {"p50": value, "p90": ordered[-1], "p99": ordered[-1]}
    return {
        "unit": unit, "better": better, "value": value, "percentiles": percentiles,
        "launches": [[v] for v in launches], "reason": reason if launches else reason or "not measured",
    }  # fmt: skip


def verdict(metric="tpot", verdict="pass", change=0.004, **fields):
    """A verdict of three launches against five."""
    before = 0.004
    return {
        "metric": metric, "verdict": verdict, "baseline": before, "change": change,
        "current": None if change is None else before * (1 + change),
        "interval": None if change is None else [change - 0.011, change + 0.012],
        "tolerance": 0.05, "minimum_detectable": 0.071, "baseline_launches": [[before]] * 5, "alpha": 0.002, "looks": 3,
        "reason": None, "against": "baseline", "launches": 3, "advice": None, "noise": NOISE, "prediction": False,
    } | fields  # fmt: skip


def record(nodeid="suites/test_x.py::test_y", *verdicts, worst=None, **fields):
    """A test's record; its verdict is that of its first comparison unless told otherwise."""
    return {
        "nodeid": nodeid, "verdict": worst or (verdicts[0]["verdict"] if verdicts else "measured"), "outcome": "passed",
        "workload": {"input_len": 512, "output_len": 256, "batch": 1, "digest": "0"}, "engine": ENGINE,
        "clock": {"locked_mhz": 900}, "verdicts": list(verdicts), "client_overhead": None, "warnings": [],
        "invalid": None,
        "metrics": {
            "ttft": metric("ttft", 0.0231, 0.0229, 0.0236), "tpot": metric("tpot", 0.00467, 0.00466, 0.00469),
            "throughput": metric("throughput", 210.3, 210.5, 209.9), "tpj": metric("tpj", 0.466, 0.465, 0.467),
            "e2e_latency": metric("e2e_latency", 1.21), "jpt": metric("jpt", 2.147, 2.149, 2.143),
            "mbu": metric("mbu"),
        },
        "requests": {
            "sent": 3, "completed": 3, "failed": 0, "first_error": None, "output_tokens": 12, "token_source": "server",
        },
    } | fields  # fmt: skip


def results(*records, gate=None, command="pytest suites/ --llmperf-engine vllm", **run):
    """A whole run."""
    return Results.model_validate(
        {
            "schema_version": 1, "gate": gate, "tests": list(records),
            "run": {
                "id": "20260101-120000-1", "started_at": "2026-01-01T12:00:00+00:00", "command": command,
                "commit": "0123456789abcdef", "dirty": False, "plugin_version": "0.1.0", **run,
            },
            "environment": {
                "python": "3.12", "platform": "Linux", "cpu": "c", "cuda": "13.0", "gpus": [], "sensor": None,
            },
        }
    )  # fmt: skip


REGRESSED = record(
    "suites/test_x.py::test_decode[16]",
    verdict("tpot", "regressed", 0.072),
    verdict("ttft", "pass", 0.21, tolerance=0.5),
    outcome="failed",
)
INCONCLUSIVE = record(
    "suites/test_x.py::test_decode[4]",
    verdict("tpot", "inconclusive", 0.041, launches=8, advice="If it is what it seems, 12 launches would decide."),
    outcome="failed",
)
IMPROVED = record("suites/test_x.py::test_decode[1]", verdict("tpot", "improved", -0.1))
UNSTORED = record(
    "suites/test_x.py::test_new",
    *(verdict(m, "no-baseline", None, baseline=None, reason="none is stored in b/x.json") for m in ("ttft", "tpot")),
    outcome="failed",
)
PASSED = record("suites/test_x.py::test_decode[2]", verdict())
