"""What answered the requests, and what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pytest_llmperf.engines import EngineInfo
from pytest_llmperf.engines.account import Account
from pytest_llmperf.trace import RequestTrace

__all__ = ["client_record", "engine_record", "plain", "requests_record", "server_record"]

#: Reasons of failed requests that the record keeps with their counts.
_REASONS = 10


def engine_record(info: EngineInfo) -> dict[str, Any]:
    """The engine that ran."""
    names = ("kind", "version", "model", "simulated", "device", "dtype", "quantization", "kv_cache_dtype")
    record: dict[str, Any] = {name: getattr(info, name) for name in names}
    record["tensor_parallel_size"] = info.tensor_parallel_size
    record["args"] = plain(info.args)
    record["treatment"] = plain(info.treatment)
    record["limits"] = dict(info.limits)
    return record


def plain(value: Any) -> Any:
    """JSON types only; anything else becomes its text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def client_record(account: Account) -> dict[str, Any] | None:
    """What the load client says of one launch; ``None`` where there was none."""
    if account.client is None:
        return None
    return asdict(account.client)


def server_record(account: Account) -> dict[str, Any] | None:
    """What the server's own metrics say of one launch; ``None`` where there are none."""
    if account.server is None:
        return None
    busiest = {"most_running": account.most_running, "most_waiting": account.most_waiting}
    return {**asdict(account.server), **busiest}


def requests_record(requests: Sequence[RequestTrace]) -> dict[str, Any]:
    """How many requests of all launches completed, why others failed, and how their tokens and times were told."""
    done = [r for r in requests if r.completed]
    failed = [r for r in requests if not r.completed]
    sources = {r.token_source for r in done}
    times = {r.time_source for r in done}
    return {
        "sent": len(requests),
        "completed": len(done),
        "failed": len(failed),
        "first_error": failed[0].error if failed else None,
        "output_tokens": sum(r.output_tokens for r in done),
        "token_source": None if not sources else ("server" if sources == {"server"} else "counted"),
        "time_source": next(iter(times)) if len(times) == 1 else "mixed" if times else None,
        "chunk_tokens": None if not done else "told" if all(r.chunk_tokens == "told" for r in done) else "apportioned",
        "errors": dict(Counter(r.error or "unknown" for r in failed).most_common(_REASONS)),
    }
