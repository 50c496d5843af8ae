"""What vLLM's server says about a load by itself: its ``/metrics`` page before and after, and the difference.

The page holds Prometheus counters and histograms that run from the server's start, so only differences concern one
load, and they concern everybody who used the server meanwhile. Times are the server's own, without the network.
Quantiles are only as good as the buckets of :mod:`~pytest_llmperf.engines.openai.histogram`: vLLM's bounds are 1, 5,
10, 20, 40, 60, 80, 100, 250 ms and so on for TTFT, 10, 25, 50, 75, 100, 150 ms and so on for TPOT and ITL, and 0.3,
0.5, 0.8, 1, 1.5 s and so on for queueing. A TPOT below 10 ms has an exact mean and hardly a median.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pytest_llmperf.engines.openai.histogram import PARTS, Histogram, is_told, merged

__all__ = ["ServerSide", "Snapshot", "between", "disagreements", "kv_cache", "parse"]

# By what we call them: the names in vLLM 0.32, then those of older versions. Counters without their "_total".
_COUNTERS = {
    "requests": ("vllm:request_success",),
    "prompt_tokens": ("vllm:prompt_tokens",),
    "generation_tokens": ("vllm:generation_tokens",),
    "preemptions": ("vllm:num_preemptions",),
    "prefix_queries": ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    "prefix_hits": ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
}
_GAUGES = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "started": ("process_start_time_seconds",),
}
_HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "tpot": ("vllm:request_time_per_output_token_seconds",),
    # Before 0.11 the latency between tokens bore the name of a time per token.
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e": ("vllm:e2e_request_latency_seconds",),
    "queue": ("vllm:request_queue_time_seconds",),
    "prefill": ("vllm:request_prefill_time_seconds",),
    "decode": ("vllm:request_decode_time_seconds",),
    "lengths": ("vllm:request_generation_tokens",),
}

#: Its labels are the settings of the KV cache, one sample an engine.
_KV_CACHE = "vllm:cache_config_info"
#: Blocks and their tokens; a longer number is of no memory that there is.
_PLAIN_COUNT = re.compile("[0-9]{1,12}")

#: A prefix cache that answers more than this share of the tokens by chance does not exist.
_HIT_RATE = 0.01


@dataclass(frozen=True)
class Snapshot:
    """One reading of ``/metrics``: what concerns us, summed over engines and models.

    Attributes:
        values: Counters and gauges, by the names of this module.
        histograms: Likewise.
    """

    values: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Histogram] = field(default_factory=dict)

    def is_vllm(self) -> bool:
        """Whether the page told anything that only vLLM tells."""
        return bool(self.histograms or self.values.keys() - {"started"})


@dataclass(frozen=True)
class ServerSide:
    """A load as the server saw it; seconds and counts, ``None`` where the server does not tell.

    Attributes:
        requests: Finished, for whatever reason.
        ttft_mean: From a request's arrival at the server to its first token.
        ttft_p50: Likewise; how well the quantiles are known says the module.
        ttft_p99: Likewise.
        tpot_mean: Decoding time over tokens after the first, of each request with more than one.
        tpot_p50: Likewise.
        tpot_p99: Likewise.
        itl_mean: Between successive tokens of a request.
        e2e_mean: From a request's arrival to its last token.
        queue_time_mean: From a request's arrival to when it was first scheduled.
        queue_time_p99: Likewise.
        prefill_time_mean: From then to its first token.
        decode_time_mean: From its first to its last token.
        prompt_tokens: Of all requests.
        generation_tokens: Of all requests.
        prefix_cache_hit_rate: Share of the prompt tokens looked up that the prefix cache had; ``None`` when it is off.
        preemptions: How often a request was put back for lack of KV cache.
        running: Requests being processed at the end.
        waiting: Requests queued at the end.
        reason: Why nothing can be told, when nothing can.
    """

    requests: int | None = None
    ttft_mean: float | None = None
    ttft_p50: float | None = None
    ttft_p99: float | None = None
    tpot_mean: float | None = None
    tpot_p50: float | None = None
    tpot_p99: float | None = None
    itl_mean: float | None = None
    e2e_mean: float | None = None
    queue_time_mean: float | None = None
    queue_time_p99: float | None = None
    prefill_time_mean: float | None = None
    decode_time_mean: float | None = None
    prompt_tokens: int | None = None
    generation_tokens: int | None = None
    prefix_cache_hit_rate: float | None = None
    preemptions: int | None = None
    running: int | None = None
    waiting: int | None = None
    reason: str | None = None


def parse(text: str) -> Snapshot:
    """Read a ``/metrics`` page in Prometheus' text format; families of others are passed over.

    Raises:
        ValueError: the text is in another format.
    """
    from prometheus_client.parser import text_string_to_metric_families

    scalars: dict[str, float] = {}
    series: dict[str, dict[tuple[tuple[str, str], ...], dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    try:
        for sample in (s for family in text_string_to_metric_families(text) for s in family.samples):
            name, part = _split(sample.name)
            if part is None:
                scalars[name] = scalars.get(name, 0.0) + float(sample.value)
                continue
            labels = dict(sample.labels)
            key = labels.pop("le", "") if part == "_bucket" else part
            series[name][tuple(sorted(labels.items()))][key] = float(sample.value)
        histograms = {name: merged(parts.values()) for name, parts in series.items()}
    except Exception as error:  # the parser stumbles over odd text in many ways
        raise ValueError(f"This is no page of Prometheus metrics: {type(error).__name__}: {error}") from None
    values = {ours: scalars.get(name, math.nan) for ours, name in _chosen(_COUNTERS | _GAUGES, scalars)}
    return Snapshot(
        {name: value for name, value in values.items() if is_told(value)},
        {ours: found for ours, name in _chosen(_HISTOGRAMS, histograms) if (found := histograms[name]) is not None},
    )


_HISTOGRAM_NAMES = frozenset(name for names in _HISTOGRAMS.values() for name in names)


def _split(name: str) -> tuple[str, str | None]:
    for part in PARTS:
        if name.removesuffix(part) in _HISTOGRAM_NAMES and name.endswith(part):
            return name.removesuffix(part), part
    return name.removesuffix("_total"), None


def _chosen(names: Mapping[str, tuple[str, ...]], there: Mapping[str, object]) -> list[tuple[str, str]]:
    """Our name with the first of vLLM's names that is there, for each of which one is."""
    return [(ours, next(n for n in theirs if n in there)) for ours, theirs in names.items() if there.keys() & theirs]


def kv_cache(text: str) -> dict[str, int]:
    """The KV cache of a server, from its ``/metrics`` page: ``num_gpu_blocks`` of ``block_size`` tokens.

    Of several engines (data parallelism) each sample tells what all of them hold together.

    Returns:
        Nothing where the page is another's, or does not tell both, or its engines' blocks differ in size.
    """
    from prometheus_client.parser import text_string_to_metric_families

    try:
        told = [sample.labels for family in text_string_to_metric_families(text) for sample in family.samples
                if sample.name == _KV_CACHE]  # fmt: skip
        sizes = {_count(labels["block_size"]) for labels in told}
        blocks = max((_count(labels["num_gpu_blocks"]) for labels in told), default=0)
    except Exception:  # the parser stumbles over odd text in many ways, and a label may be missing or "None"
        return {}
    if len(sizes) != 1 or min(sizes) < 1 or blocks < 1:
        return {}
    return {"block_size": sizes.pop(), "num_gpu_blocks": blocks}


def _count(label: str) -> int:
    """The number in a label.

    Raises:
        ValueError: it is none, or no plain one: ``int`` would also take ``"1_6"``, signs and digits of other scripts.
    """
    if not _PLAIN_COUNT.fullmatch(label):
        raise ValueError(f"{label[:40]!r} is no count.")
    return int(label)


def between(before: Snapshot, after: Snapshot) -> ServerSide | None:
    """What happened between two readings of one server; ``None`` when one of them is not of a vLLM server.

    When the server was restarted meanwhile, which a count that fell gives away, only ``reason`` is told.
    """
    if not before.is_vllm() or not after.is_vllm():
        return None
    if reason := _restarted(before, after):
        return ServerSide(reason=reason)
    histograms = {
        name: after.histograms[name].since(before.histograms[name])
        for name in before.histograms.keys() & after.histograms.keys()
    }
    if "tpot" in histograms:
        histograms["tpot"] = _without_single_tokens(histograms["tpot"], histograms.get("lengths"))

    def count(name: str) -> int | None:
        known = name in before.values and name in after.values
        return round(after.values[name] - before.values[name]) if known else None

    def now(name: str) -> int | None:
        return round(after.values[name]) if name in after.values else None

    def of(name: str, figure: Callable[[Histogram], float | None]) -> float | None:
        return figure(histograms[name]) if name in histograms else None

    queries, hits = count("prefix_queries"), count("prefix_hits")
    return ServerSide(
        requests=count("requests"),
        ttft_mean=of("ttft", Histogram.mean),
        ttft_p50=of("ttft", _p50),
        ttft_p99=of("ttft", _p99),
        tpot_mean=of("tpot", Histogram.mean),
        tpot_p50=of("tpot", _p50),
        tpot_p99=of("tpot", _p99),
        itl_mean=of("itl", Histogram.mean),
        e2e_mean=of("e2e", Histogram.mean),
        queue_time_mean=of("queue", Histogram.mean),
        queue_time_p99=of("queue", _p99),
        prefill_time_mean=of("prefill", Histogram.mean),
        decode_time_mean=of("decode", Histogram.mean),
        prompt_tokens=count("prompt_tokens"),
        generation_tokens=count("generation_tokens"),
        prefix_cache_hit_rate=hits / queries if queries and hits is not None else None,
        preemptions=count("preemptions"),
        running=now("running"),
        waiting=now("waiting"),
    )


def _p50(histogram: Histogram) -> float | None:
    return histogram.quantile(0.5)


def _p99(histogram: Histogram) -> float | None:
    return histogram.quantile(0.99)


def _restarted(before: Snapshot, after: Snapshot) -> str | None:
    both = before.values.keys() & after.values.keys()
    if "started" in both and before.values["started"] != after.values["started"]:
        return "the server was restarted meanwhile: it tells another time of its start"
    pairs = [(n, before.values[n], after.values[n]) for n in _COUNTERS if n in both]
    for name, old in before.histograms.items():
        if name in after.histograms:
            new = after.histograms[name]
            pairs.append((name, old.count, new.count))
            pairs += [(name, old.below[b], new.below[b]) for b in old.below.keys() & new.below.keys()]
    for name, was, is_now in pairs:
        if is_now < was:
            return f"the server was restarted meanwhile: its count of {name} fell from {was:g} to {is_now:g}"
    return None


def _without_single_tokens(tpot: Histogram, lengths: Histogram | None) -> Histogram:
    """Leave out the requests of one token: they have no time per token, and vLLM enters them with 0."""
    single = lengths.below.get(1.0, 0.0) if lengths is not None else 0.0
    below = {bound: max(0.0, count - single) for bound, count in tpot.below.items()}
    return Histogram(below, max(0.0, tpot.count - single), tpot.total)


def disagreements(
    ours_requests: int, ours_output_tokens: int, server: ServerSide, *, shared_prefix: bool = False
) -> list[str]:
    """Sentences about what the server counted beyond what we sent: then the figures are not only ours.

    Args:
        ours_requests: All that we sent between the two readings, warm-up and failed ones among them.
        ours_output_tokens: All tokens that came back for them.
        server: What the server says.
        shared_prefix: Whether the workload asks for prompts that share a prefix.
    """
    found = []
    if server.requests is not None and server.requests > ours_requests:
        found.append(
            f"The server finished {server.requests} requests while we sent {ours_requests}: somebody else uses it."
        )
    if server.generation_tokens is not None and server.generation_tokens > ours_output_tokens:
        found.append(
            f"The server generated {server.generation_tokens} tokens while we received {ours_output_tokens}: somebody "
            "else uses it, or answers were lost."
        )
    rate = server.prefix_cache_hit_rate
    if rate is not None and rate > _HIT_RATE and not shared_prefix:
        found.append(
            f"The server's prefix cache answered {rate:.1%} of the prompt tokens, which the workload did not ask for."
        )
    return found
