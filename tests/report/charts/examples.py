"""Findings and records of tests made by hand, one of each kind, as the charts are given them."""

import math

from pytest_llmperf.results import Finding, Results, TestRecord

from ..records import GATE, record, results, verdict

UNITS = {
    "clock": "MHz", "power": "W", "tpj": "tokens/J", "jpt": "J/token", "throughput": "tokens/s", "ttft": "s",
    "tpot": "s", "e2e_latency": "s", "mbu": "1", "mfu": "1", "memory_used": "B", "prompt_share": "1", "share": "1",
    "intensity": "FLOP/B", "flops": "FLOP/s", "rate": "1/s", "idle_jpt": "J/token", "weights_jpt": "J/token",
    "kv_jpt": "J/token",
}  # fmt: skip


def mark(name, label, x=None, y=None, low=None, high=None):
    """A place in a chart."""
    return {"name": name, "label": label, "x": x, "y": y, "low": low, "high": high}


def finding(kind, columns, rows, *marks, name="one", **titles):
    """A finding; the columns are named by their names unless a title is given."""
    return Finding.model_validate(
        {
            "kind": kind, "name": name, "title": f"{kind} of it", "sentences": ["The answer.", "What it rests on."],
            "columns": [{"name": c, "title": titles.get(c, c), "unit": UNITS.get(c)} for c in columns],
            "rows": [list(row) for row in rows], "marks": list(marks), "tests": ["suites/test_x.py::test_y"],
        }
    )  # fmt: skip


CLOCKS = [*range(750, 1301, 50)]
BATCHES = [1, 2, 4, 8, 16, 32, 64]


def power(clock, batch=1):
    """Watts that look like a board's."""
    return 95 + (60 + 14 * math.log2(batch)) * (clock / 1000) ** 2.4


def step(clock, batch=1):
    """Seconds of a decode step that look like a board's."""
    return 0.0215 * (0.72 + 0.28 * 1000 / clock) * (1 + batch / 90)


def _grid():
    for batch in BATCHES:
        for clock in CLOCKS:
            speed = batch / step(clock, batch)
            yield (batch, clock, power(clock, batch), speed / power(clock, batch), speed, step(clock, batch),
                   0.09 * batch + 256 * step(clock, batch))  # fmt: skip


GRID = finding(
    "batch_and_clock", ("batch", "clock", "power", "tpj", "throughput", "tpot", "e2e_latency"), _grid(), name="decode"
)
SWEET_SPOT = finding(
    "sweet_spot",
    ("clock", "power", "tpj", "e2e_latency", "tpot", "ttft", "throughput", "held"),
    [
        *(
            (c, power(c, 8), 8 / step(c, 8) / power(c, 8), 256 * step(c, 8), step(c, 8), 0.1, 8 / step(c, 8), "locked")
            for c in CLOCKS
        ),
        (1485, 240.0, 1.3, 5.2, 0.02, 0.08, 400.0, "free"),
    ],
    mark("optimum", "900 MHz: +17.0 %", 900, 1.9, 850, 1000),
    mark("interval", "optimum: 850 to 1000 MHz", None, None, 850, 1000),
    mark("limit", "1100 MHz: +8.7 %", 1100, 1.7),
    mark("free", "running free: 1485 MHz", 1485, 1.3),
)
LOAD = finding(
    "latency_throughput",
    ("batch", "throughput", "e2e_latency", "tpot"),
    [(b, b / step(1000, b), 256 * step(1000, b), step(1000, b)) for b in (*BATCHES, 128, 256)],
    mark("knee", "knee", 64, 3000.0),
    mark("predicted", "predicted: 173", 173),
    mark("measured", "measured: 90", 90, 0.0215, 80, 105),
)
LENGTHS = finding(
    "lengths",
    ("input_len", "output_len", "e2e_latency", "prompt_share", "mfu"),
    [
        (i, o, i * 2e-4 + o * 0.02, i * 2e-4 / (i * 2e-4 + o * 0.02), 0.7 * i / (i + 200))
        for i in (128, 512, 1024, 2048, 4096)
        for o in (8, 32, 64, 128, 256)
    ],
)
SCALING = finding(
    "scaling",
    ("tensor_parallel_size", "batch", "ttft", "tpot", "mbu", "tpj"),
    [(n, b, 0.05 / n, step(1000, b) / n**0.6, 0.7 / n**0.3, 2 * b**0.7 / n**0.5) for n in (1, 2, 4) for b in (1, 16)],
)
SIZES = finding(
    "model_size",
    ("model", "total_params", "batch", "tpot", "tpj"),
    [
        (model, params, batch, tpot * (1 + batch / 16), tpj)
        for batch in (1, 16)
        for model, params, tpot, tpj in (
            ("llama-7b", 6.7e9, 0.0215, 0.4),
            ("mistral-7b", 7.2e9, 0.0212, 0.4),
            ("llama-13b", 13e9, 0.039, 0.24),
            ("llama-30b", 32.5e9, 0.089, 0.11),
        )
    ],
)
POLICIES = finding(
    "batching_policies",
    ("policy", "rate", "throughput", "e2e_latency", "ttft"),
    [
        (policy, rate, min(rate, top) * 100, (2 + rate / 4) * slow, 0.1 * slow)
        for policy, top, slow in (("continuous", 9, 1), ("dynamic", 7, 1.4), ("static", 5, 2.2))
        for rate in (1, 2, 4, 8)
    ],
)
FORMATS = finding(
    "formats",
    ("format", "batch", "tpot", "tpj", "memory_used"),
    [
        ("bfloat16", 1, 0.0215, 0.41, 15.2e9),
        ("fp8 weights", 1, 0.0126, 0.7, 8.1e9),
        ("fp8 KV cache", 1, 0.021, 0.42, None),
    ],
)
IDLE = finding(
    "idle", ("rung", "power"), [("bare", 39.8), ("context", 58.1), ("model loaded", 61.3), ("900 MHz", 64.0)]
)
PHASES = finding(
    "phases",
    ("phase", "power", "jpt"),
    [("prefill", 268.0, 0.0412), ("decode", 171.0, 3.61), ("end to end", 176.0, 3.7)],
)
HARDWARE = finding(
    "hardware", ("what", "share"), [("copy bandwidth", 0.81), ("matrix rate", 0.74), ("peer to peer", None)]
)
ROOFLINE = finding(
    "roofline",
    ("test", "phase", "intensity", "flops"),
    [
        *((f"test_decode[{b}]", "decode", b * 0.98, b * 0.98 * 6.1e11) for b in BATCHES),
        *((f"test_prefill[{n}]", "prefill", n * 0.95, 8.5e13) for n in (128, 512, 2048)),
    ],
    mark("peak_flops", "125 TFLOP/s", None, 1.25e14),
    mark("balance", "173 FLOP/B", 173.0),
    mark("copy_bandwidth", "copy: 650 GB/s", None, 6.5e11),
    mark("matmul_flops", "matrix product: 91 TFLOP/s", None, 9.1e13),
)
CACHE = finding("kv_cache", ("context", "sequences"), [(2**n * 1024, 128 / 2**n) for n in range(6)])
SPLIT = finding(
    "energy_split",
    ("load", "batch", "idle_jpt", "weights_jpt", "kv_jpt"),
    [
        ("test_decode[1]", 1, 1.1, 2.4, 0.02),
        ("test_decode[16]", 16, 0.07, 0.17, 0.03),
        ("test_long[16]", 16, 0.1, 0.2, 0.2),
    ],
)
FINDINGS = (
    PHASES, GRID, SWEET_SPOT, IDLE, LOAD, LENGTHS, SCALING, SIZES, POLICIES, FORMATS, HARDWARE, ROOFLINE, CACHE, SPLIT,
)  # fmt: skip


def condition(value, baseline=None, reason=None):
    """A condition with one launch."""
    return {
        "unit": "s", "launches": [] if value is None else [value], "value": value, "baseline": baseline,
        "baseline_launches": [] if baseline is None else [baseline], "reason": reason,
    }  # fmt: skip


CONDITIONS = {
    "send_delay": condition(0.00004, 0.00004), "queue_time": condition(0.0012, 0.0011),
    "prefill_time": condition(0.0961, 0.0957), "decode_time": condition(1.171, 1.092),
    "client_overhead": condition(0.0006, 0.0006),
}  # fmt: skip


def timeline(points=120, activity=True, capped=True):
    """A prefill, then decode, with a stretch in which the board was held down."""
    seconds = [-0.1 + 1.5 * at / (points - 1) for at in range(points)]
    watts = [70.0 if s < 0 else 280 + 8 * math.sin(40 * s) if s < 0.2 else 180 + 3 * math.sin(60 * s) for s in seconds]
    return {
        "launch": 2, "seconds": seconds, "power": watts,
        "sm_clock": [1.2e9 if 0.6 < s < 0.75 and capped else 1.305e9 for s in seconds],
        "sm_activity": [0.0 if s < 0 else 0.94 if s < 0.2 else 0.31 for s in seconds] if activity else None,
        "capped": [{"start": 0.6, "end": 0.75, "reason": "sw_power_cap"}] if capped else [],
        "phases": [{"phase": "prefill", "start": 0.0, "end": 0.2}, {"phase": "decode", "start": 0.2, "end": 1.35}],
    }  # fmt: skip


def _repeats(*centres, spread=0.002):
    return [[c * (1 + spread * (at - 1)) for at in range(3)] for c in centres]


def gated(nodeid="suites/test_phases.py::test_decode[16]", **fields):
    """A test that was gated, with all that charts are made of."""
    before = _repeats(0.003985, 0.00401, 0.00399, 0.00402, 0.004)
    raw = record(
        nodeid,
        verdict("tpot", "regressed", 0.072, baseline_launches=before),
        verdict(
            "ttft",
            "inconclusive",
            0.031,
            baseline=0.0224,
            interval=[-0.04, 0.12],
            baseline_launches=[[0.0222], [0.0226]],
        ),
        verdict("tpj", "pass", -0.004, baseline=0.468, baseline_launches=[[0.4672], [0.4688]]),
        **{"conditions": CONDITIONS, "timeline": timeline(), **fields},
    )
    raw["metrics"] |= {"tpot": raw["metrics"]["tpot"] | {"launches": _repeats(0.00428, 0.0043, 0.00427)}}
    return TestRecord.model_validate(raw)


def measured(**fields):
    """A test that was measured and gated by nothing."""
    return TestRecord.model_validate(
        record(**{"conditions": CONDITIONS, "timeline": timeline(activity=False), **fields})
    )


def run(*tests, found=FINDINGS, **fields):
    """A run of records with findings."""
    made = results(*(test.model_dump() for test in tests), gate=GATE, **fields)
    return Results.model_validate({**made.model_dump(), "findings": [one.model_dump() for one in found]})
