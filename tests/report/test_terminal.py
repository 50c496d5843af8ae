"""What the terminal is given to print."""

from types import SimpleNamespace

from pytest_llmperf.report.terminal import table


def test_the_engines_line_cannot_act_on_the_terminal():
    engine = SimpleNamespace(kind="openai", version="1\x1b[2J", model="m\r\n\x07", device="d\x9b", simulated=False)
    test = SimpleNamespace(
        nodeid="f.py::t\x1b", engine=engine, metrics={}, verdicts=[], verdict="measured", outcome="passed", client=[],
        server=[], client_overhead=None, requests=None, warnings=[], workload=None, search=None,
    )  # fmt: skip
    results = SimpleNamespace(tests=[test], worst_first=lambda: [test])
    lines = [line for line, _ in table(results, 80)]
    assert lines[0] == r"openai 1\x1b[2J, m\r\n\x07, d\x9b"
    assert all(line.isprintable() for line in lines)
