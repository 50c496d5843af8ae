"""How exactly load generators time a server whose send times are known, ours and the field's.

Two questions, each asked of every client that is installed:

- Errors: S requests are sent at once (32 prompt tokens, 64 output tokens, one every 20 ms). Of each request and each
  token, what the client reported minus what the server did: time to first token against (first send - receipt of the
  request), inter-token times against the gaps between sends.
- Rate: with 256 streams, the highest total rate of tokens at which the 99th percentile of the error of inter-token
  times stays within 1 ms and the client keeps up with the server.

The server runs on one core and the client, with all its processes, on another. A run in which the server itself was
late beyond a limit is marked: its figures say nothing about the client.

    python -m benchmarks.load_client.compare --vllm-python ENV/bin/python --guidellm ENV --aiperf ENV --json out.json
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load_client.clients import Client, Load, RequestTiming
from benchmarks.load_client.clients.aiperf import AiPerf
from benchmarks.load_client.clients.guidellm import GuideLlm
from benchmarks.load_client.clients.ours import Ours
from benchmarks.load_client.clients.vllm_bench import VllmBench
from benchmarks.load_client.server import ServerLog, compile_server, running
from benchmarks.load_client.timing import Comparison, compare
from benchmarks.load_client.tokenizer import write_tokenizer

PROMPT_TOKENS = 32
ERROR_LIMIT_S = 1e-3
#: Above this share of the client's core, what else ran there is named in the table.
FOREIGN_LIMIT = 0.05
#: A client that sees tokens arrive this much slower than they were sent has fallen behind.
KEEPING_UP = 0.98
#: What sending the requests has left for the client to do is done before the first token of a rate.
SETTLE_US = 1_000_000
#: At the lowest rates a stream would end before it has told anything.
LEAST_TOKENS = 32


@dataclass(frozen=True)
class Bench:
    """What all runs share."""

    program: Path
    tokenizer: Path
    folder: Path
    server_core: int
    client_core: int
    timeout_s: float
    late_limit_s: float
    retries: int


@dataclass(frozen=True)
class Outcome:
    """One run of one client: a comparison, or the reason why there is none.

    Attributes:
        comparison: ``None`` when the client failed.
        server: The server's own summary.
        refused: Why the run says nothing about the client, or ``None``.
        server_late: Whether that is because the server was late, which is no fault of the client.
    """

    comparison: Comparison | None
    server: dict[str, Any]
    refused: str | None
    server_late: bool = False

    def record(self) -> dict[str, Any]:
        """As a JSON object."""
        return {
            "comparison": None if self.comparison is None else self.comparison.record(),
            "server": self.server,
            "refused": self.refused,
        }


def main() -> None:
    """Measure, write the JSON file, print the table."""
    arguments = _arguments()
    clients: list[Client] = [
        Ours(), VllmBench(arguments.vllm_python), GuideLlm(arguments.guidellm), AiPerf(arguments.aiperf)
    ]  # fmt: skip
    names = [c.name for c in clients]
    if unknown := [name for name in arguments.only or () if name not in names]:
        sys.exit(f"There is no client {unknown[0]!r}; --only takes one of: {', '.join(names)}.")
    if arguments.only:
        clients = [c for c in clients if c.name in arguments.only]
    with tempfile.TemporaryDirectory(prefix="load-client-") as scratch:
        folder = Path(scratch) if arguments.keep is None else arguments.keep.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(
            compile_server(folder), write_tokenizer(folder / "tokenizer"), folder, arguments.server_core,
            arguments.client_core, arguments.timeout, arguments.late_limit_ms / 1e3, arguments.retries,
        )  # fmt: skip
        result: dict[str, Any] = {"machine": _machine(arguments), "clients": []}
        for client in clients:
            entry = _measure(bench, client, arguments)
            result["clients"].append(entry)
            if arguments.json is not None:  # after each client: an interrupted run keeps what it has
                arguments.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    print(_markdown(result))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm-python", type=Path, help="interpreter of an environment with vLLM")
    parser.add_argument("--guidellm", type=Path, help="virtual environment with GuideLLM")
    parser.add_argument("--aiperf", type=Path, help="virtual environment with AIPerf")
    parser.add_argument("--only", action="append", help="measure only the client of this name; may be repeated")
    parser.add_argument("--streams", type=_integers, default=[64, 256, 512, 1024], help="such as 64,256,512,1024")
    parser.add_argument("--output-tokens", type=int, default=64)
    parser.add_argument("--stagger-us", type=int, default=0, help="spread the streams' schedules, see the server")
    parser.add_argument(
        "--rates", type=_integers,
        default=[1000, 2000, 4000, 8000, 12000, 16000, 24000, 32000, 48000, 64000, 96000, 128000, 192000],
        help="tokens a second, ascending; 0 for none",
    )  # fmt: skip
    parser.add_argument("--rate-streams", type=int, default=256)
    parser.add_argument("--rate-seconds", type=float, default=3.0)
    parser.add_argument("--server-core", type=int, default=1)
    parser.add_argument("--client-core", type=int, default=0)
    parser.add_argument("--late-limit-ms", type=float, default=5.0, help="99th percentile of the server's own lateness")
    parser.add_argument("--retries", type=int, default=2, help="repeat a run in which the server was late this often")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds for one run of a client")
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("--keep", type=Path, help="keep the clients' files and the server's logs in this folder")
    return parser.parse_args()


def _integers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def _machine(arguments: argparse.Namespace) -> dict[str, Any]:
    described = (line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines())
    cpu = next((text.strip() for name, _, text in described if name.strip() == "model name"), platform.machine())
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "load_before": os.getloadavg()[0],
        "server_core": arguments.server_core,
        "client_core": arguments.client_core,
        "output_tokens": arguments.output_tokens,
        "rate_streams": arguments.rate_streams,
        "stagger_us": arguments.stagger_us,
    }


def _measure(bench: Bench, client: Client, arguments: argparse.Namespace) -> dict[str, Any]:
    reason = client.unavailable()
    if reason is not None:
        return {"name": client.name, "unavailable": reason}
    entry: dict[str, Any] = {
        "name": client.name, "version": client.version(), "mean_only": client.mean_only, "errors": [], "rates": []
    }  # fmt: skip
    for streams in arguments.streams:
        options = ["--stagger-us", str(arguments.stagger_us)]
        outcome = _run(bench, client, streams, arguments.output_tokens, options)
        entry["errors"].append({"streams": streams, **outcome.record()})
        _progress(client, f"{streams} streams", outcome)
    for rate in filter(None, arguments.rates):
        streams = arguments.rate_streams
        tokens = max(LEAST_TOKENS, round(rate * arguments.rate_seconds / streams))
        options = ["--pump", str(rate), "--streams", str(streams), "--ttft-us", str(SETTLE_US)]
        outcome = _run(bench, client, streams, tokens, options)
        verdict = outcome.refused or _too_fast(outcome.comparison)
        entry["rates"].append({"rate": rate, **outcome.record(), "failed": verdict})
        _progress(client, f"{rate} tokens/s", outcome)
        if verdict is not None:
            break
    return entry


def _too_fast(comparison: Comparison | None) -> str | None:
    """Why the client does not stand this rate, or ``None``."""
    if comparison is None or comparison.itl is None:
        return "no inter-token times"
    if comparison.itl.p99 > ERROR_LIMIT_S:
        return f"p99 error {comparison.itl.p99 * 1e3:.2f} ms"
    if comparison.rate is not None and comparison.rate < KEEPING_UP:
        return f"kept up with {comparison.rate:.0%} of the rate"
    return f"{comparison.gaps_missing} gaps missing" if comparison.gaps_missing else None


def _run(bench: Bench, client: Client, streams: int, tokens: int, options: Sequence[str]) -> Outcome:
    """One run, repeated while something else on its core made the server late."""
    for _ in range(bench.retries + 1):
        outcome = _run_once(bench, client, streams, tokens, options)
        if not outcome.server_late:
            break
    return outcome


def _run_once(bench: Bench, client: Client, streams: int, tokens: int, options: Sequence[str]) -> Outcome:
    folder = bench.folder / f"{client.name.replace(' ', '-')}-{'-'.join(map(str, (streams, tokens, *options)))}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    log = folder / "server.jsonl"
    with running(bench.program, log, ["--cpu", str(bench.server_core), *options]) as server:
        load = Load(server.url, streams, PROMPT_TOKENS, tokens, bench.tokenizer, folder)
        before = _foreign_s(bench.client_core), time.monotonic()
        problem = _confined(client.command(load), bench, folder / "client.log")
        foreign = (_foreign_s(bench.client_core) - before[0]) / (time.monotonic() - before[1])
        truth = server.stop()
    truth.summary["foreign_on_client_core"] = max(0.0, foreign)
    if problem is not None:
        return Outcome(None, truth.summary, problem)
    try:
        reported = client.read(load)
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        return Outcome(None, truth.summary, f"its result cannot be read: {type(error).__name__}: {error}")
    return _judge(bench, client, load, reported, truth, steady="--pump" in options)


def _judge(
    bench: Bench, client: Client, load: Load, reported: list[RequestTiming], log: ServerLog, *, steady: bool
) -> Outcome:
    # Probes ask for other numbers of tokens.
    truth = [t for t in log.requests if t.asked_tokens == load.output_tokens]
    comparison = compare(reported, truth, mean_only=client.mean_only, steady=steady)
    refused, late = None, False
    if len(truth) != load.streams:
        refused = f"the server answered {len(truth)} of {load.streams} requests"
    elif len(reported) != load.streams:
        refused = f"the client reports {len(reported)} of {load.streams} requests"
    elif any(t.blocked for t in truth):
        refused = f"{sum(t.blocked for t in truth)} tokens waited for the client to read"
    elif log.late_p99_s > bench.late_limit_s:
        late = True
        refused = f"the server was late by {log.late_p99_s * 1e3:.1f} ms (p99)"
    return Outcome(comparison, log.summary, refused, late)


def _confined(command: list[str], bench: Bench, log: Path) -> str | None:
    """Run a client on its core; returns why it failed, or ``None``.

    Its processes inherit the core, and its own session lets all of them be ended when it takes too long.
    """
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    with log.open("w") as output:
        process = subprocess.Popen(
            ["taskset", "-c", str(bench.client_core), *command], stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout=bench.timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    if status is None:
        return f"it did not end within {bench.timeout_s:g} s"
    return f"exit status {status}: {_last_line(log)}" if status else None


def _foreign_s(core: int) -> float:
    """Seconds that a core has been busy with what this process has not started: only differences mean something."""
    fields = next(
        line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{core} ")
    ).split()
    user, nice, system, _idle, _iowait, interrupts, soft, steal = map(int, fields[1:9])
    busy = (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    return busy - ours.ru_utime - ours.ru_stime


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _progress(client: Client, what: str, outcome: Outcome) -> None:
    print(f"{client.name}, {what}: {outcome.refused or 'done'}", file=sys.stderr, flush=True)


def _markdown(result: dict[str, Any]) -> str:
    machine, clients = result["machine"], result["clients"]
    measured = [c for c in clients if "errors" in c]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, {machine['date'][:10]}; "
        f"server on core {machine['server_core']}, client on core {machine['client_core']}; "
        + ", ".join(c["version"] for c in measured)
        + ".",
        "",
        f"Magnitude of (reported - true), in ms: p50 / p99 / max; {machine['output_tokens']} output tokens.",
        "",
        "| streams | client | TTFT error | inter-token error | matched by | server late p99 | |",
        "|---:|---|---:|---:|---|---:|---|",
    ]
    rows = [(row["streams"], client, row) for client in measured for row in client["errors"]]
    lines += [_error_row(client, row) for _, client, row in sorted(rows, key=lambda r: r[0])]
    ramps = [_rate_row(client) for client in measured if client["rates"]]
    lines += ramps and [
        "",
        f"Highest rate with {machine['rate_streams']} streams before the p99 inter-token error passes "
        f"{ERROR_LIMIT_S * 1e3:g} ms or the client falls behind.",
        "",
        "| client | tokens/s | what ended it |",
        "|---|---:|---|",
        *ramps,
    ]
    if any(c["mean_only"] for c in measured):
        lines += ["", "(mean): it reports one inter-token time a request, the mean; its error is that of the mean."]
    lines += [f"\nNot measured: {c['name']} ({c['unavailable']})." for c in clients if "unavailable" in c]
    return "\n".join(lines)


def _error_row(client: dict[str, Any], row: dict[str, Any]) -> str:
    found = row["comparison"] or {}
    late = row["server"]["late_ns"]
    mean = " (mean)" if client["mean_only"] else ""
    missing = f"{found['gaps_missing']} gaps missing" if found.get("gaps_missing") else ""
    foreign = row["server"].get("foreign_on_client_core", 0.0)
    shared = f"other work took {foreign:.0%} of the client's core" if foreign > FOREIGN_LIMIT else ""
    notes = "; ".join(filter(None, ["refused: " + row["refused"] if row["refused"] else "", missing, shared]))
    return (
        f"| {row['streams']} | {client['name']} | {_errors(found.get('ttft'))} | {_errors(found.get('itl'))}{mean} "
        f"| {found.get('matched', '')} | {'' if late is None else format(late['p99'] / 1e6, '.2f')} | {notes} |"
    )


def _errors(errors: dict[str, Any] | None) -> str:
    if errors is None:
        return "-"
    return " / ".join(f"{errors[name] * 1e3:.3f}" for name in ("p50", "p99", "maximum"))


def _rate_row(client: dict[str, Any]) -> str:
    passed = [row["rate"] for row in client["rates"] if row["failed"] is None]
    failed = next((row for row in client["rates"] if row["failed"] is not None), None)
    ended = "the highest rate tried" if failed is None else f"at {failed['rate']}: {failed['failed']}"
    mean = " (mean)" if client["mean_only"] else ""
    return f"| {client['name']}{mean} | {max(passed) if passed else '-'} | {ended} |"


if __name__ == "__main__":
    main()
