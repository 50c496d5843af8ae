from pytest_llmperf.report.page.facts import peaks_alike, unexplained
from pytest_llmperf.results import Peaks

from ..records import metric, record, results, verdict


def reached(copy, **fields):
    return Peaks.model_validate(
        {"device": "NVIDIA H200", "copy_bandwidth": copy, "host_to_device": None, "device_to_host": None,
         "peer_to_peer": {}, "matmul_flops": {"bfloat16": 8e14}, "method": "m"} | fields
    )  # fmt: skip


def test_devices_that_reach_the_same_are_one_line():
    found = peaks_alike(
        [reached(4e12, peer_to_peer={"1": 1e11}), reached(4e12, peer_to_peer={"0": 1e11}), reached(3e12)]
    )
    assert [(peak.copy_bandwidth, count) for peak, count in found] == [(4e12, 2), (3e12, 1)]
    assert peaks_alike([]) == []


def test_a_reason_that_the_metric_gives_is_not_given_again():
    verdicts = [
        verdict("tpot", "not-applicable", None, reason="no link"),
        verdict("ttft", "no-baseline", None, reason="none stored"),
    ]
    metrics = {"tpot": metric("tpot", reason="no link"), "ttft": metric("ttft", 0.02)}
    (test,) = results(record("t", *verdicts, metrics=metrics)).tests
    assert [one.metric for one in unexplained(test)] == ["ttft"]
