"""Runs whose pages are opened: what a page can hold, once each."""

from pytest_llmperf.results import Results

from ..records import (
    ENGINE,
    GATE,
    HOSTILE,
    IMPROVED,
    INCONCLUSIVE,
    PASSED,
    REGRESSED,
    UNSTORED,
    metric,
    record,
    results,
    verdict,
)

DEFINITIONS = {
    "tpot": {"unit": "s", "better": "lower", "formula": "(t_last - t_first) / (N - 1)", "source": "the client's times"},
    "ttft": {"unit": "s", "better": "lower", "formula": "first token - due", "source": "the client's receive times"},
}  # fmt: skip
READINGS = 40
#: What a spreadsheet takes for the beginning of a formula.
FORMULAS = ("=", "+", "@", "-", "\t=")
TIMELINE = {
    "launch": 2,
    "seconds": [n / 10 for n in range(READINGS)],
    "power": [100.0 + 10 * n if n != 7 else None for n in range(READINGS)],
    "sm_clock": [1.98e9 - 1e7 * (n % 5) for n in range(READINGS)],
    "sm_activity": None,
    "capped": [{"start": 1.0, "end": 1.4, "reason": "sw_power_cap"}],
    "phases": [{"phase": "prefill", "start": 0.0, "end": 0.5}, {"phase": "decode", "start": 0.5, "end": 3.9}],
}
CONDITIONS = {
    name: {
        "unit": "s", "launches": [value], "value": value, "baseline": value * 0.9, "baseline_launches": [value * 0.9],
        "reason": None,
    }
    for name, value in (
        ("send_delay", 0.0001), ("queue_time", 0.002), ("prefill_time", 0.02), ("decode_time", 1.1),
        ("client_overhead", 0.0003),
    )
}  # fmt: skip
FINDING = {
    "kind": "sweet_spot", "name": "decode-batch-16", "title": "Sweet spot of decode, batch 16",
    "sentences": ["Lock at 900 MHz: -31 % energy, +4.2 % latency.", "Between 850 and 950 MHz nothing is told apart."],
    "columns": [
        {"name": "clock", "title": "SM clock", "unit": "MHz"}, {"name": "power", "title": "Power", "unit": "W"},
        {"name": "tpj", "title": "Tokens/J", "unit": "tokens/J"}, {"name": "tpot", "title": "TPOT", "unit": "s"},
    ],
    "rows": [
        [800.0, 150.0, 3.1, 0.0052], [900.0, 162.0, 3.4, 0.0047], [1000.0, 190.0, 3.3, 0.0045],
        [1100.0, 220.0, None, 0.0044],
    ],
    "marks": [{"name": "optimum", "label": "900 MHz", "x": 900.0, "y": 3.4, "low": 850.0, "high": 950.0}],
    "tests": ["suites/test_x.py::test_decode[16]"],
}  # fmt: skip

WHOLE = REGRESSED | {
    "timeline": TIMELINE, "conditions": CONDITIONS, "warnings": ["The clock gave way for 12 % of the time."],
    "explanation": ["Decode is 7.2 % slower (from 1.2 s to 1.3 s a request); under test: slowdown=1.07."],
}  # fmt: skip


def with_definitions(run, findings=()):
    return Results.model_validate(
        run.model_dump(mode="json") | {"definitions": DEFINITIONS, "findings": list(findings)}
    )


def gated():
    """Of every verdict one, a timeline, a finding, and values whose order as text is another."""
    slow = record(
        "suites/test_x.py::test_decode[128]",
        verdict(change=-0.002, baseline=1.2, current=1.1976),
        metrics={"tpot": metric("tpot", 1.1976, 1.1975), "ttft": metric("ttft", 0.101, 0.102)},
    )
    return with_definitions(results(PASSED, WHOLE, INCONCLUSIVE, IMPROVED, UNSTORED, slow, gate=GATE), [FINDING])


def hostile():
    """Every text that somebody else may choose is a hostile one."""
    tests = [
        record(
            name if name.startswith(FORMULAS) else f"suites/test_x.py::test_y[{name}]",
            verdict(change=0.001 * n, advice=name, saved_at=name),
            engine=ENGINE | {"model": name, "device": name, "args": {name: name}},
            warnings=[name],
            explanation=[name],
            timeline=TIMELINE,
        )
        for n, name in enumerate([*HOSTILE, *(f"{sign}cmd|' /C calc'!A0" for sign in FORMULAS)])
    ]
    finding = FINDING | {
        "name": HOSTILE[0], "title": HOSTILE[1], "sentences": list(HOSTILE),
        "columns": [{"name": name, "title": name, "unit": name} for name in HOSTILE[:4]],
        "rows": [[HOSTILE[0], HOSTILE[1], "=1+1", 4.0]], "tests": list(HOSTILE),
    }  # fmt: skip
    return with_definitions(results(*tests, gate=GATE, command=HOSTILE[0], id=HOSTILE[1], commit=HOSTILE[2]), [finding])


def measured():
    """Nothing was gated."""
    tests = [record(f"suites/test_x.py::test_m[{n}]", timeline=TIMELINE) for n in range(3)]
    return with_definitions(results(*tests))


def tall():
    """Charts above everything that a link leads to, and sections below them."""
    loads = [1, 2, 4, 8, 16, 32]
    tests = [
        record(
            f"suites/test_x.py::test_t[{n}]",
            timeline=TIMELINE,
            workload={"input_len": 512, "output_len": 256, "batch": n, "digest": "0"},
            metrics={"tpot": metric("tpot", 0.0089 * n), "throughput": metric("throughput", 100.0 * n)},
            clock={"locked_mhz": 800 + 100 * (n % 3)},
        )
        for n in loads
    ]
    long = [[800.0 + n, 150.0, 3.1 + n / 100, 0.005] for n in range(30)]
    findings = [
        FINDING | {"name": f"decode-batch-{n}", "title": f"Sweet spot of decode, batch {n}", "rows": long if n == 1
                   else FINDING["rows"]}
        for n in loads
    ]  # fmt: skip
    return with_definitions(results(*tests), findings)
