"""``--llmperf-engine http://...`` from the command line to the report."""

import json

import pytest

from pytest_llmperf.models import shape_folder

from .servers import FakeServer
from .stored import rewrite

SUITE = """
from pytest_llmperf import Workload

def test_load(llmperf):
    llmperf.check(Workload(6, 5, batch=3, warmup=0))
"""
QUICK = ("--llmperf-repeats=1", "-o", "llmperf_tolerance=1000000%")


def only(records):
    (record,) = records.values()
    return record


@pytest.fixture
def served(suite):
    suite.write(SUITE)

    def run(server, *arguments, path="", settings=",calibrate=false"):
        return suite.run(*QUICK, *arguments, engine=f"http://{server.address}{path}{settings}")

    return run


class TestTheMainJob:
    def test_save_gate_and_the_record(self, suite, served):
        with FakeServer() as server:
            assert served(server, "--llmperf-save").ret == 0
            result = served(server)
        assert result.ret == 0
        record = only(suite.records())
        assert record["verdict"] == "pass"
        assert record["engine"]["kind"] == "openai"
        assert not record["engine"]["simulated"]
        requests = record["requests"]
        assert (requests["sent"], requests["completed"], requests["output_tokens"]) == (3, 3, 15)
        assert (requests["token_source"], requests["chunk_tokens"]) == ("server", "told")
        assert requests["time_source"] == "kernel"
        (client,) = record["client"]
        assert (client["requests"], client["output_tokens"], client["workers"]) == (3, 15, 1)
        assert record["server"] == []
        result.stdout.fnmatch_lines(["*client: 1 worker(s), times from kernel*"])

    def test_prompts_are_token_ids_of_the_asked_number(self, served):
        with FakeServer() as server:
            served(server)
        prompts = [tuple(body["prompt"]) for body in server.requests[1:]]
        assert [len(p) for p in prompts] == [6] * 3
        assert len(set(prompts)) == 3
        assert all(body["max_tokens"] == 5 and body["stream"] for body in server.requests[1:])

    def test_a_chat_url_sends_messages(self, suite, served):
        with FakeServer() as server:
            served(server, path="/v1/chat/completions")
        assert all(len(body["messages"][0]["content"].split()) == 6 for body in server.requests[1:])
        assert only(suite.records())["requests"]["completed"] == 3

    def test_a_baseline_of_other_requests_is_compared_with_a_warning(self, suite, served):
        def told():
            return [w for w in only(suite.records())["warnings"] if "baseline" in w]

        with FakeServer() as server:
            served(server, "--llmperf-save", "--llmperf-launches=1", path="/v1/completions")
            assert served(server, path="/v1/completions").ret == 0
            assert told() == []
            assert served(server, path="/v1/chat/completions").ret == 0
        assert told() == [
            "The baseline's requests were completions (ignore_eos, usage with each chunk), this run's chat "
            "(ignore_eos, usage with each chunk): the difference includes theirs."
        ]

    def test_a_baseline_of_an_engine_in_process_is_compared_with_a_warning(self, suite, served):
        with FakeServer() as server:
            served(server, "--llmperf-save", "--llmperf-launches=1")
            (path,) = (suite.folder / "baselines").rglob("*.json")
            asked = json.loads(path.read_text())["provenance"]["request"]
            assert asked == "completions (ignore_eos, usage with each chunk)"
            in_process = {"request": None, "engine": "vllm"}
            rewrite(path, lambda stored: stored["provenance"].update(in_process))
            assert served(server).ret == 0
        assert (
            "The baseline was measured in process (vllm), this run over HTTP (openai): the difference includes the API."
            in only(suite.records())["warnings"]
        )

    def test_the_model_is_the_one_that_is_served(self, suite, served):
        models = {"data": [{"id": "served/name", "owned_by": "vllm", "max_model_len": 4096}]}
        with FakeServer(models=models) as server:
            served(server)
            assert only(suite.records())["engine"]["model"] == "served/name"
            assert {body["model"] for body in server.requests} == {"served/name"}
            result = served(server, "--llmperf-model=another/name")
        result.stdout.fnmatch_lines(["*does not serve another/name. It serves: served/name.*"])

    @pytest.mark.parametrize(
        ("ids", "warning"),
        [
            (["a", "b\x1b", "a"], "The server serves 2 models, of which a was measured: a, b\\x1b. Choose one with "
             "--llmperf-model NAME."),
            ([], "The server lists no model, so none was named to it. Name it with --llmperf-model NAME."),
            (["a"], None),
        ],
    )  # fmt: skip
    def test_a_model_that_nobody_asked_for(self, suite, served, ids, warning):
        with FakeServer(models={"data": [{"id": one} for one in ids]}) as server:
            served(server)
            assert only(suite.records())["warnings"].count(warning) == (warning is not None)
            served(server, "--llmperf-model=a")
        assert not [w for w in only(suite.records())["warnings"] if "--llmperf-model" in w]

    @pytest.mark.parametrize("odd", ["a\ud800b", "a\x1b[2Jb", "m" * 1_000_000])
    def test_a_model_with_an_odd_name(self, suite, served, odd):
        with FakeServer(models={"data": [{"id": odd, "owned_by": odd}]}) as server:
            assert served(server, "--llmperf-save", "--llmperf-launches=1").ret == 0
            result = served(server)
        assert result.ret == 0
        assert {body["model"] for body in server.requests} == {odd}
        assert "\x1b" not in result.stdout.str()
        assert only(suite.records())["engine"]["model"].isprintable()
        assert suite.results.with_name("report.html").stat().st_size < 1_000_000

    def test_a_model_that_lies_here_is_known(self, suite, served):
        models = {"data": [{"id": "x", "root": shape_folder("tiny-llama"), "owned_by": "vllm"}]}
        with FakeServer(models=models) as server:
            served(server)
        record = only(suite.records())
        assert record["engine"]["model"] == "tiny-llama"
        assert record["metrics"]["mfu"]["reason"] is None or "config" not in record["metrics"]["mfu"]["reason"]

    def test_calibration_stands_in_the_record(self, suite, served):
        with FakeServer() as server:
            served(server, settings="")
        (client,) = only(suite.records())["client"]
        assert client["calibration"]["streams"] > 0

    def test_a_prompt_longer_than_the_server_takes_is_refused_before_it_is_sent(self, served):
        with FakeServer(models={"data": [{"id": "m", "max_model_len": 8}]}) as server:
            result = served(server)
        assert len(server.requests) == 1  # the probe
        result.stdout.fnmatch_lines(["*longest request has 11 tokens and m serves 8*"])


class TestFailures:
    def test_a_stalled_request_is_counted_and_the_others_measured(self, suite, served):
        stalled = lambda number: "stall" if number == 2 else None  # noqa: E731
        with FakeServer(stalled) as server:
            result = served(server, "-o", "llmperf_read_timeout=0.5")
        assert result.ret == 1
        record = only(suite.records())
        assert record["verdict"] == "invalid"
        assert (record["requests"]["completed"], record["requests"]["failed"]) == (2, 1)
        assert record["requests"]["errors"] == {record["requests"]["first_error"]: 1}
        assert "read timeout" in record["requests"]["first_error"]
        assert record["metrics"]["ttft"]["value"] is not None

    def test_allowed_failures_are_left_out_of_the_figures(self, suite, served):
        with FakeServer(lambda number: "error" if number == 2 else None) as server:
            served(server, "--llmperf-save")
            served(server, "-o", "llmperf_allowed_failures=1")
        record = only(suite.records())
        assert record["invalid"] is None
        assert record["requests"]["completed"] == 3

    def test_no_baseline_is_stored_from_a_run_with_failed_requests(self, suite, served):
        with FakeServer(lambda number: "error" if number == 2 else None) as server:
            result = served(server, "--llmperf-save", "-o", "llmperf_allowed_failures=1")
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*1 requests failed, and no baseline is stored from such a run*"])
        assert not list(suite.folder.rglob("baselines/**/*.json"))

    def test_a_report_folder_that_cannot_be_written_is_found_at_once(self, suite):
        suite.write(SUITE)
        (suite.folder / "file").write_text("no folder")
        result = suite.pytester.runpytest("--llmperf-engine=sim:h200", "--llmperf-report=file/report")
        assert result.ret == 4
        result.stderr.fnmatch_lines(["*cannot be written*--llmperf-report=DIR*"])

    def test_https_to_a_server_that_speaks_plain_http(self, suite):
        suite.write(SUITE)
        with FakeServer() as server:
            result = suite.run(engine=f"https://{server.address},calibrate=false")
        result.stdout.fnmatch_lines(["*it speaks plain HTTP there. Write http:// instead of https://.*"])

    def test_a_failure_is_told_once(self, served):
        with FakeServer() as server:
            pass
        result = served(server)
        assert result.stdout.str().count("No server accepts connections") == 2  # the failure, and the short summary
        assert "During handling" not in result.stdout.str()

    def test_a_server_that_is_gone_ends_the_test_at_once(self, suite, served):
        suite.write(SUITE.replace("warmup=0", "warmup=1"))
        servers = []

        def answer(number):
            if number == 4:  # the probe, three of the warm-up, and then nothing listens any more
                servers[0].stop()

        with FakeServer(answer) as server:
            servers.append(server)
            result = served(server, "--llmperf-repeats=50")
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*is gone: it accepts no connection any more. See its log*"])

    def test_unknown_vocabularies_get_ids_that_every_model_has(self, served):
        with FakeServer() as server:
            served(server)
        assert max(max(body["prompt"]) for body in server.requests) < 256

    def test_nothing_listens(self, suite, served):
        with FakeServer() as server:
            pass
        result = served(server)
        assert result.ret == 1
        result.stdout.fnmatch_lines(["*No server accepts connections at http://127.0.0.1:*"])


class TestSecrets:
    KEY = "sk-very-secret-4711"

    def everything(self, suite, result):
        files = [p.read_text(errors="replace") for p in (suite.folder / "report").rglob("*") if p.is_file()]
        return "\n".join([result.stdout.str(), result.stderr.str(), *files])

    def test_the_key_reaches_the_server_and_no_output(self, suite, served, monkeypatch):
        monkeypatch.setenv("LLMPERF_API_KEY", self.KEY)
        with FakeServer(lambda number: "error" if number == 1 else None) as server:
            result = served(server, "-v")
        assert server.headers[0]["Authorization"] == f"Bearer {self.KEY}"
        assert "no: Bearer ***" in only(suite.records())["requests"]["first_error"]
        assert self.KEY not in self.everything(suite, result)

    def test_a_refused_key_is_told_without_it(self, suite, served, monkeypatch):
        monkeypatch.setenv("LLMPERF_API_KEY", self.KEY)
        with FakeServer(lambda _: "refuse") as server:
            result = served(server)
        result.stdout.fnmatch_lines(["*refuses us: HTTP 401*LLMPERF_API_KEY*"])
        assert self.KEY not in self.everything(suite, result)

    def test_what_the_url_holds(self, suite):
        suite.write(SUITE)
        with FakeServer() as server:
            engine = f"http://user:{self.KEY}@{server.address}/v1/completions?api-key={self.KEY},calibrate=false"
            result = suite.run(*QUICK, "-v", engine=engine)
        assert server.headers[-1]["Authorization"].startswith("Basic ")
        text = self.everything(suite, result)
        assert self.KEY not in text
        assert "***" in json.loads(suite.results.read_text())["run"]["command"]

    @pytest.mark.parametrize("setting", ["api_key", "token"])
    def test_a_key_on_the_command_line_is_refused_without_repeating_it(self, suite, setting):
        result = suite.run(engine=f"http://localhost:1,{setting}={self.KEY}")
        assert result.ret == 4
        assert self.KEY not in result.stdout.str() + result.stderr.str()
        result.stderr.fnmatch_lines(["*LLMPERF_API_KEY*"])


class TestOptions:
    @pytest.mark.parametrize(
        ("engine", "told"),
        [
            ("http://localhost:1,workerz=2", "Did you mean 'workers'?"),
            ("http://localhost:1,workers=0", "workers is a whole number of at least 1"),
            ("http://localhost:1,verify=maybe", "verify is true or false"),
            ("http://", "names no host"),
            ("http://localhost:99999", "not valid"),
            ("ftp://user:pw@localhost", "there is no engine 'ftp://***@localhost'"),
        ],
    )
    def test_wrong_ones_end_the_session(self, suite, engine, told):
        result = suite.run(engine=engine)
        assert result.ret == 4
        assert told in result.stderr.str()


PAGE = """
# TYPE vllm:request_success_total counter
vllm:request_success_total{{finished_reason="length"}} {requests}
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total {tokens}
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running 2
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting 1
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{le="1.0"}} {requests}
vllm:time_to_first_token_seconds_bucket{{le="+Inf"}} {requests}
vllm:time_to_first_token_seconds_count {requests}
vllm:time_to_first_token_seconds_sum {sum}
"""


class TestServerMetrics:
    def page(self, requests, tokens, *, others=0):
        return PAGE.format(requests=requests + others, tokens=tokens + 5 * others, sum=(requests + others) * 0.25)

    def test_they_stand_beside_ours(self, suite, served):
        suite.write(SUITE.replace("warmup=0", "warmup=1"))
        with FakeServer(metrics=self.page) as server:
            result = served(server)
        record = only(suite.records())
        (told,) = record["server"]
        assert (told["requests"], told["generation_tokens"]) == (3, 15)
        assert told["ttft_mean"] == pytest.approx(0.25)
        assert (told["most_running"], told["most_waiting"]) == (2, 1)
        assert not any("somebody else" in warning for warning in record["warnings"])
        result.stdout.fnmatch_lines(["*test_load by the server's metrics: means of TTFT 250.0 ms*"])

    def test_requests_of_others_are_noticed(self, suite, served):
        seen = []

        def page(requests, tokens):
            seen.append(None)
            return self.page(requests, tokens, others=len(seen))

        with FakeServer(metrics=page) as server:
            served(server)
        assert any("somebody else uses it" in warning for warning in only(suite.records())["warnings"])
