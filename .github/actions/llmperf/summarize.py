"""The summary step of the action: a report folder as Markdown on standard output.

A summary.md in the folder is taken as it is. Without one, a small table is made of results.json.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: name: (heading, factor from SI, unit, digits)
COLUMNS = {
    "ttft": ("TTFT", 1e3, "ms", 4),
    "tpot": ("TPOT", 1e3, "ms", 4),
    "throughput": ("Throughput", 1, "tok/s", 4),
    "tpj": ("Tokens/J", 1, "", 3),
    "mbu": ("MBU", 100, "%", 3),
}
#: Of a test whose name or reason is very long, as much as a table can show.
LONGEST = 400
_ENTITIES = {ord(character): f"&#{ord(character)};" for character in "&<>\\`*_[]|~#@"}


def summary(folder: Path) -> str:
    """Markdown for the report in ``folder``; says so when there is none."""
    if (folder / "summary.md").is_file():
        return (folder / "summary.md").read_text(encoding="utf-8")
    if not (folder / "results.json").is_file():
        if any(folder.glob("journal*.jsonl")):
            return "The run ended early; what it measured is in the journal of the report folder.\n"
        return "No report was written; the log of the measuring step says why.\n"
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return "\n".join([*_head(results), "", *_table(results["tests"]), "", *_reasons(results["tests"])]).strip() + "\n"


def _head(results: Mapping[str, Any]) -> list[str]:
    engines = [test["engine"] for test in results["tests"] if test["engine"]]
    lines = ["### LLM inference performance", ""]
    devices = [f"{e['kind']} {e['version']}, {e['model']} ({e['dtype']}) on {e['device']}" for e in engines]
    lines += [f"- {_cell(text)}" for text in dict.fromkeys(devices)]
    treatments = [e["treatment"] for e in engines if e["treatment"]]
    lines += [f"- Arguments under test: {_cell(json.dumps(t))}" for t in treatments[:1]]
    clocks = sorted({str(test["clock"]["locked_mhz"]) for test in results["tests"] if test["clock"]["locked_mhz"]})
    if clocks:
        lines.append(f"- SM clock locked at {', '.join(clocks)} MHz")
    if any(engine["simulated"] for engine in engines):
        lines.append("- **Simulated: no figure below was measured on a GPU.**")
    return lines


def _table(tests: list[dict[str, Any]]) -> list[str]:
    shown = [name for name in COLUMNS if any(_value(test, name) is not None for test in tests)]
    lines = [
        "| Test | Verdict | " + "".join(f"{COLUMNS[name][0]} | " for name in shown),
        "|---|---|" + "---:|" * len(shown),
    ]
    for test in tests:
        verdict = test["verdict"] if test["outcome"] != "failed" else f"**{test['verdict']}** (failed)"
        lines.append(f"| {_cell(test['nodeid'])} | {verdict} | " + "".join(f"{_shown(test, n)} | " for n in shown))
    return [line.rstrip() for line in lines]


def _value(test: Mapping[str, Any], name: str) -> float | None:
    return (test["metrics"].get(name) or {}).get("value")


def _shown(test: Mapping[str, Any], name: str) -> str:
    value = _value(test, name)
    if value is None:
        return "-"
    _, factor, unit, digits = COLUMNS[name]
    text = _number(value * factor, digits) + (f" {unit}" if unit else "")
    change = next((v["change"] for v in test["verdicts"] if v["metric"] == name and v["change"] is not None), None)
    return text if change is None else f"{text} ({change:+.1%})"


def _number(value: float, digits: int) -> str:
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:.0f}"
    return f"{value:#.{digits}g}"


def _reasons(tests: list[dict[str, Any]]) -> list[str]:
    lines = []
    for test in tests:
        if test["invalid"]:
            lines.append(f"- {_cell(test['nodeid'])}: {_cell(test['invalid'])}")
            continue
        for v in test["verdicts"]:
            if v["verdict"] in ("pass", "improved", "not-applicable"):
                continue
            words = [f"{v['metric']} {v['verdict']}"]
            if v["change"] is not None:
                words.append(f"{v['change']:+.1%} against a tolerance of {v['tolerance']:.1%}")
            if v["reason"]:
                words.append(_cell(v["reason"]))
            lines.append(f"- {_cell(test['nodeid'])}: {', '.join(words)}")
    return lines


def _cell(text: str) -> str:
    """Text that stays inside its cell and is no markup."""
    line = " ".join(str(text).split())
    return (line if len(line) <= LONGEST else line[:LONGEST] + "…").translate(_ENTITIES)


if __name__ == "__main__":
    print(summary(Path(sys.argv[1])), end="")
