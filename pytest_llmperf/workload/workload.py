"""The workload itself: one frozen, validated, flat description."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.workload.checks import check_count, check_positive, parses
from pytest_llmperf.workload.lengths import Distribution, length_of
from pytest_llmperf.workload.replay import TraceRequest, read_trace

__all__ = ["ARRIVALS", "POLICIES", "SLO_METRICS", "Workload"]

ARRIVALS = ("poisson", "constant", "gamma")
POLICIES = ("continuous", "static", "dynamic")

#: Latency metrics on which a service-level objective can be set.
SLO_METRICS = ("ttft", "tpot", "itl", "e2e_latency")

#: What an open loop without ``requests`` sends: half a minute of load.
_OPEN_LOOP_SECONDS = 30
#: What a closed loop without ``requests`` sends: this many rounds of its concurrency.
_CLOSED_LOOP_ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Workload:
    """What to send and when.

    Exactly one of ``batch``, ``concurrency``, ``rate`` and ``trace`` says how requests are offered; with none of
    them, ``batch=1``.

    Args:
        input_len: Prompt tokens per request: a number, or a :class:`Distribution` (or its JSON form).
        output_len: Output tokens per request, likewise.
        batch: Send this many requests at once and wait for all.
        concurrency: Closed loop: keep this many requests in flight.
        rate: Open loop: requests per second, whatever the engine does.
        arrival: How an open loop spaces its requests: ``"poisson"``, ``"constant"`` or ``"gamma:SHAPE"`` (shape 1
            is Poisson; below 1 is burstier).
        trace: Replay a file: one JSON object a line with ``arrival`` (s), ``input_len``, ``output_len``.
        requests: How many requests a repeat sends. Default: the batch; 8 rounds of the concurrency; 30 s of the
            rate; the whole trace.
        policy: Batching by the client: ``"continuous"`` sends each request when it is due; ``"static"`` waits
            for ``max_batch`` requests and for each batch to end; ``"dynamic"`` gathers up to ``max_batch``
            requests or ``max_wait`` seconds.
        max_batch: For the policies ``static`` and ``dynamic``.
        max_wait: For the policy ``dynamic``, seconds.
        warmup: How often the whole workload runs before anything is measured.
        seed: Of lengths, arrivals and prompts.
        shared_prefix: Leading prompt tokens that all requests share.
        sampling: Sampling parameters for the engine; greedy by default.
        slo: Limits in seconds by latency metric; they yield ``goodput`` and are no part of the work itself.

    Raises:
        WorkloadError: a value is of the wrong type or range, or two values contradict each other; names the field.
    """

    input_len: int | Distribution = 512
    output_len: int | Distribution = 256
    batch: int | None = field(default=None, kw_only=True)
    concurrency: int | None = field(default=None, kw_only=True)
    rate: float | None = field(default=None, kw_only=True)
    arrival: str = field(default="poisson", kw_only=True)
    trace: str | None = field(default=None, kw_only=True)
    requests: int | None = field(default=None, kw_only=True)
    policy: str = field(default="continuous", kw_only=True)
    max_batch: int | None = field(default=None, kw_only=True)
    max_wait: float | None = field(default=None, kw_only=True)
    warmup: int = field(default=1, kw_only=True)
    seed: int = field(default=0, kw_only=True)
    shared_prefix: int = field(default=0, kw_only=True)
    sampling: Mapping[str, Any] = field(default_factory=dict, kw_only=True)
    slo: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("input_len", "output_len"):
            object.__setattr__(self, name, length_of(name, getattr(self, name)))
        for name in ("batch", "concurrency", "requests", "max_batch"):
            check_count(name, getattr(self, name), least=1, optional=True)
        for name in ("warmup", "seed", "shared_prefix"):
            check_count(name, getattr(self, name), least=0)
        for name in ("rate", "max_wait"):
            check_positive(name, getattr(self, name))
            if getattr(self, name) is not None:
                # 2 and 2.0 are the same rate and have to give the same digest.
                object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "trace", None if self.trace is None else str(self.trace))
        self._check_loop()
        self._check_arrival()
        self._check_policy()
        object.__setattr__(self, "sampling", _frozen("sampling", self.sampling))
        object.__setattr__(self, "slo", _frozen("slo", self.slo))
        self._check_slo()
        if self.trace is not None:
            trace = read_trace(Path(self.trace))
            if self.requests is not None and self.requests > len(trace):
                raise WorkloadError(f"requests={self.requests} asks for more than the {len(trace)} of {self.trace}.")
            object.__setattr__(self, "_replay", trace[: self.requests])
        self._check_prefix()

    def _check_loop(self) -> None:
        given = [n for n in ("batch", "concurrency", "rate", "trace") if getattr(self, n) is not None]
        if len(given) > 1:
            raise WorkloadError(
                f"{' and '.join(given)} were given together; a workload is loaded in one way.",
                remedy="Keep exactly one of batch, concurrency, rate and trace.",
            )
        if not given:
            object.__setattr__(self, "batch", 1)
        if self.batch is not None and self.requests is not None and self.requests % self.batch:
            raise WorkloadError(f"requests={self.requests} is no whole number of batches of {self.batch}.")
        if self.concurrency is not None and self.requests is not None and self.requests < self.concurrency:
            raise WorkloadError(
                f"requests={self.requests} can never keep concurrency={self.concurrency} requests in flight.",
                remedy=f"Ask for at least {self.concurrency} requests.",
            )
        if self.trace is not None and (self.input_len, self.output_len) != (512, 256):
            raise WorkloadError("trace brings its own lengths; input_len and output_len cannot be given with it.")

    def _check_arrival(self) -> None:
        kind, colon, shape = str(self.arrival).partition(":")
        if kind not in ARRIVALS:
            raise WorkloadError(f"arrival={self.arrival!r} is not known.", remedy=f"Use one of: {', '.join(ARRIVALS)}.")
        if (kind == "gamma") != bool(colon):
            raise WorkloadError(
                f"arrival={self.arrival!r}: only gamma takes a shape, and needs one.",
                remedy='Write "gamma:0.5", say.',
            )
        if colon and not (parses(shape) and 1e-3 <= float(shape) <= 1e3):
            raise WorkloadError(f"arrival={self.arrival!r}: the shape is a number above 0 (from 0.001 to 1000).")
        if self.arrival != "poisson" and self.rate is None:
            raise WorkloadError(f"arrival={self.arrival!r} says how a rate is spaced, and no rate was given.")

    def _check_policy(self) -> None:
        if self.policy not in POLICIES:
            raise WorkloadError(f"policy={self.policy!r} is not known.", remedy=f"Use one of: {', '.join(POLICIES)}.")
        if self.policy != "continuous" and self.rate is None and self.trace is None:
            raise WorkloadError(f"policy={self.policy!r} gathers requests that arrive; it needs a rate or a trace.")
        if self.policy == "static" and self.max_batch is None:
            raise WorkloadError("policy='static' needs max_batch: how many requests make a batch.")
        if self.policy == "dynamic" and (self.max_batch is None or self.max_wait is None):
            raise WorkloadError("policy='dynamic' needs max_batch and max_wait (seconds).")
        if self.policy != "dynamic" and self.max_wait is not None:
            raise WorkloadError(f"max_wait belongs to policy='dynamic', not to {self.policy!r}.")
        if self.policy == "continuous" and self.max_batch is not None:
            raise WorkloadError("max_batch belongs to the policies static and dynamic, not to continuous.")

    def _check_prefix(self) -> None:
        if self.replay:
            longest = max(r.input_len for r in self.replay)
        else:
            longest = self.input_len if isinstance(self.input_len, int) else self.input_len.high
        if self.shared_prefix >= longest:
            raise WorkloadError(
                f"shared_prefix={self.shared_prefix} leaves nothing of an input_len of at most {longest} to differ."
            )

    def _check_slo(self) -> None:
        for name, limit in self.slo.items():
            if name not in SLO_METRICS:
                raise WorkloadError(f"slo has no metric {name!r}.", remedy=f"Use any of: {', '.join(SLO_METRICS)}.")
            check_positive(f"slo[{name!r}]", limit)

    @property
    def loop(self) -> str:
        """``"batch"``, ``"closed"`` or ``"open"``: how the requests are offered."""
        if self.batch is not None:
            return "batch"
        return "closed" if self.concurrency is not None else "open"

    @property
    def replay(self) -> tuple[TraceRequest, ...]:
        """The requests of ``trace``; empty without one."""
        return getattr(self, "_replay", ())

    @property
    def request_count(self) -> int:
        """How many requests one repeat sends."""
        if self.replay:
            return len(self.replay)
        if self.requests is not None:
            return self.requests
        if self.batch is not None:
            return self.batch
        if self.concurrency is not None:
            return self.concurrency * _CLOSED_LOOP_ROUNDS
        assert self.rate is not None
        return max(1, math.ceil(self.rate * _OPEN_LOOP_SECONDS))

    @property
    def longest(self) -> int:
        """Prompt and output tokens of the longest request that can occur: what the model's context must hold."""
        if self.replay:
            return max(r.input_len + r.output_len for r in self.replay)
        return sum(n if isinstance(n, int) else n.high for n in (self.input_len, self.output_len))

    @property
    def digest(self) -> str:
        """16 hex digits: the same digest means the same work, on every Python version and machine.

        The limits in ``slo`` judge the work and are left out; a trace counts by its content, not its path.
        """
        record = self.to_json()
        del record["slo"]
        if self.replay:
            record["trace"] = [[r.arrival, r.input_len, r.output_len] for r in self.replay]
        text = json.dumps(record, sort_keys=True, allow_nan=False, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def replace(self, **changes: Any) -> Workload:
        """A copy with some fields changed, validated again; giving one way to load drops the other.

        Raises:
            WorkloadError: as for the constructor, or a field of that name does not exist.
        """
        known = {f.name for f in fields(self)}
        if unknown := sorted(set(changes) - known):
            raise WorkloadError(
                f"A workload has no field {unknown[0]!r}.", remedy=f"It has: {', '.join(sorted(known))}."
            )
        current = {name: getattr(self, name) for name in known}
        loads = ("batch", "concurrency", "rate", "trace")
        if any(changes.get(name) is not None for name in loads):
            current.update(dict.fromkeys(loads))
        return Workload(**{**current, **changes})

    def to_json(self) -> dict[str, Any]:
        """The fields as records keep them: plain JSON types."""
        record: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("input_len", "output_len"):
            if isinstance(record[name], Distribution):
                record[name] = record[name].to_json()
        record["sampling"] = _thawed(self.sampling)
        record["slo"] = dict(self.slo)
        return record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.digest == other.digest and dict(self.slo) == dict(other.slo)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_from_json, (self.to_json(),))


def _from_json(record: dict[str, Any]) -> Workload:
    return Workload(**record)


def _frozen(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise WorkloadError(f"{name} is a mapping from names to values, not {value!r}.")
    try:
        plain = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise WorkloadError(f"{name} holds a value that JSON cannot keep: {error}.") from None
    return MappingProxyType(plain)


def _thawed(value: Mapping[str, Any]) -> dict[str, Any]:
    return json.loads(json.dumps(dict(value)))  # type: ignore[no-any-return]  # it went in as a dict
