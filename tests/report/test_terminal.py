"""What the terminal is given to print."""

from types import SimpleNamespace

from pytest_llmperf.report.terminal import table


def test_the_engines_line_cannot_act_on_the_terminal():
    engine = SimpleNamespace(kind="openai", version="1\x1b[2J", model="m\r\n\x07", device="d\x9b", simulated=False)
    test = SimpleNamespace(
        nodeid="f.py::t\x1b", engine=engine, metrics={}, verdicts=[], verdict="measured", outcome="passed", client=[],
        server=[], client_overhead=None, requests=None, warnings=[], workload=None, search=None,
    )  # fmt: skip
    results = SimpleNamespace(tests=[test], worst_first=lambda: [test], gate=None)
    lines = [line for line, _ in table(results, 80)]
    assert lines[0] == r"openai 1\x1b[2J, m\r\n\x07, d\x9b"
    assert all(line.isprintable() for line in lines)


def test_warnings_of_one_kind_are_one_line():
    def one(name, *warnings):
        return SimpleNamespace(
            nodeid=f"f.py::{name}", engine=None, metrics={}, verdicts=[], verdict="measured", outcome="passed",
            client=[], server=[], client_overhead=None, requests=None, warnings=warnings, workload=None, search=None,
        )  # fmt: skip

    tests = [
        one("a", "The clock ran free and gave way for 12% of the time: x.", "Other words altogether."),
        one("b", "prefill: The clock ran free and gave way for 99.5% of the time: y."),
    ]
    results = SimpleNamespace(tests=tests, worst_first=lambda: tests, gate=None)
    said = " ".join(" ".join(line for line, _ in table(results, 80)).split())
    assert "a: The clock ran free and gave way for 12% of the time: x. (and 1 more of this kind)" in said
    assert "a: Other words altogether." in said
    assert "99.5%" not in said
