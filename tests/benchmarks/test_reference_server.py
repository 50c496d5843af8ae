import http.client
import json
import shutil
from itertools import pairwise
from urllib.parse import urlsplit

import pytest

from benchmarks.load_client.clients import RequestTiming
from benchmarks.load_client.server import Truth, compile_server, read_log, running
from benchmarks.load_client.timing import compare


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler named cc")
    return compile_server(tmp_path_factory.mktemp("server"))


def connect(server):
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)


def events(connection, path, body, headers=None):
    connection.request("POST", path, json.dumps(body), headers or {})
    response = connection.getresponse()
    assert response.status == 200
    assert response.getheader("Content-Type").startswith("text/event-stream")
    data = response.read().decode().split("\n\n")
    assert data[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in data[:-2]]


QUICK = ("--ttft-us", "1000", "--itl-us", "500")


def test_completions_stream_and_log(program, tmp_path):
    body = {
        "prompt": [5, 6, 7], "max_tokens": 4, "stream": True, "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    with running(program, tmp_path / "log", QUICK) as server:
        connection = connect(server)
        *tokens, usage = events(connection, "/v1/completions", body, {"X-Request-Id": "mine"})
        connection.request("GET", "/dump")
        dumped = read_log(connection.getresponse().read().decode())
        connection.close()
        log = server.stop()
    assert [t["choices"][0]["token_ids"] for t in tokens] == [[0], [1], [2], [3]]
    assert [t["choices"][0]["finish_reason"] for t in tokens] == [None, None, None, "length"]
    assert {t["id"] for t in tokens} == {"cmpl-mine"}
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert dumped.requests == log.requests
    (truth,) = log.requests
    assert (truth.request_id, truth.asked_tokens, truth.blocked, log.unfinished) == ("mine", 4, 0, 0)
    assert len(truth.sent_ns) == 4
    assert all(earlier < later for earlier, later in pairwise((truth.received_ns, *truth.sent_ns)))
    assert log.summary["tokens"] == 4
    assert log.summary["late_ns"]["p99"] >= 0


def test_chat_opens_with_the_role_and_a_chunked_body_is_read(program, tmp_path):
    body = {"messages": [{"role": "user", "content": "a b"}], "max_completion_tokens": 2, "stream": True}
    text = json.dumps(body).encode()
    with running(program, tmp_path / "log", QUICK) as server:
        connection = connect(server)
        connection.request("POST", "/v1/chat/completions", iter([text[:20], text[20:]]), encode_chunked=True)
        answer = connection.getresponse().read().decode().split("\n\n")
        connection.close()
    deltas = [json.loads(event.removeprefix("data: "))["choices"][0]["delta"] for event in answer[:-2]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": " w0"}, {"content": " w1"}]


def test_pump_interleaves_the_streams_evenly(program, tmp_path):
    body = {"prompt": "a", "max_tokens": 3, "stream": True}
    with running(program, tmp_path / "log", ["--pump", "2000", "--streams", "2", "--ttft-us", "1000"]) as server:
        connections = [connect(server), connect(server)]
        for connection in connections:
            connection.request("POST", "/v1/completions", json.dumps(body))
        for connection in connections:
            assert connection.getresponse().read().count(b"data: ") == 4
            connection.close()
        server.stop()
    _, *records = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [r["interval_ns"] for r in records] == [1_000_000, 1_000_000]
    assert records[1]["due_ns"] - records[0]["due_ns"] == 500_000


def test_probes(program, tmp_path):
    with running(program, tmp_path / "log", ()) as server:
        connection = connect(server)
        found = {}
        for path in ("/health", "/v1/models", "/version", "/metrics"):
            connection.request("GET", path)
            response = connection.getresponse()
            found[path] = (response.status, response.read())
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 1}))
        once = json.loads(connection.getresponse().read())
        connection.close()
        assert server.stop().requests == ()
    assert [status for status, _ in found.values()] == [200, 200, 200, 404]
    assert json.loads(found["/v1/models"][1])["data"][0]["id"] == "reference"
    assert once["usage"]["completion_tokens"] == 1


def truth(request_id, received, *sent):
    return Truth(request_id, len(sent), received * 10**6, tuple(s * 10**6 for s in sent), 0)


TRUTH = [truth("a", 0, 50, 70, 90), truth("b", 5, 65, 85, 115)]


def test_errors_by_request_id():
    reported = [RequestTiming(0.061, [0.02, 0.03], "b"), RequestTiming(0.050, [0.021, 0.02], "a")]
    found = compare(reported, TRUTH, mean_only=False)
    assert (found.matched, found.requests, found.gaps_missing) == ("request id", 2, 0)
    assert found.ttft.maximum == pytest.approx(0.001)
    assert found.itl.count == 4
    assert found.itl.maximum == pytest.approx(0.001)
    assert found.itl.p50 == pytest.approx(0)


def test_without_ids_ranks_are_compared():
    found = compare([RequestTiming(0.062, [0.02, 0.02]), RequestTiming(0.05, [0.03, 0.02])], TRUTH, mean_only=False)
    assert found.matched == "sorted"
    assert found.ttft.maximum == pytest.approx(0.002)
    assert found.itl.maximum == pytest.approx(0)


def test_means_are_compared_with_true_means_and_what_is_missing_is_counted():
    found = compare([RequestTiming(0.05, [0.025], "a"), RequestTiming(0.06, [], "b")], TRUTH, mean_only=True)
    assert found.itl.maximum == pytest.approx(0.005)
    assert found.gaps_missing == 1


def test_a_steady_comparison_leaves_out_the_last_gaps():
    reported = [RequestTiming(0.05, [0.02, 0.5], "a"), RequestTiming(0.06, [0.02, 0.5], "b")]
    found = compare(reported, TRUTH, mean_only=False, steady=True)
    assert (found.itl.count, found.gaps_missing) == (2, 0)
    assert found.itl.maximum == pytest.approx(0)
    assert found.rate == pytest.approx(0.045 / 0.52)
