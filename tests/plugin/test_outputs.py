"""Answers to fixed prompts: taken once an engine, stored with the baseline, compared, and judged."""

import asyncio
import json

import pytest

from pytest_llmperf.baselines.storage import digest_of
from pytest_llmperf.engines.pool import EnginePool
from pytest_llmperf.errors import EngineError, RequestError
from pytest_llmperf.fingerprint import OUTPUT_LEN, Answer, Outputs, Unavailable
from pytest_llmperf.plugin.outputs import judge, take
from tests.fakes import SPEC, ScriptedEngine, tokens

from .servers import FakeServer

SUITE = """
import pytest
from pytest_llmperf import Workload

{marker}
def test_one(llmperf):
    llmperf.check(Workload(6, 5, batch=3, warmup=0))

def test_two(llmperf):
    llmperf.check(Workload(7, 5, batch=3, warmup=0))
"""
QUICK = ("--llmperf-repeats=1", "-o", "llmperf_tolerance=1000000%")
TOLERANCES = {"token_agreement": 0.1, "logprob_difference": 0.1}


def told(body, *, token=None, p=-0.5, margin=3.0):
    """A whole answer: the n-th token is the prompt's length plus n, unless told otherwise."""
    ids = [len(body["prompt"]) + n if token is None else token(n) for n in range(body["max_tokens"])]
    return {
        "choices": [
            {
                "token_ids": ids,
                "logprobs": {"token_logprobs": [p] * len(ids), "top_logprobs": [{"a": p, "b": p - margin}] * len(ids)},
            }
        ]
    }


@pytest.fixture
def served(suite):
    def write(marker=""):
        suite.write(SUITE.format(marker=marker))

    def run(answer, *arguments):
        with FakeServer(whole=answer) as server:
            result = suite.run(*QUICK, *arguments, engine=f"http://{server.address},calibrate=false")
        return result, suite.records(), server

    write()
    run.write = write
    return run


def verdicts(record):
    return {v["metric"]: v for v in record["verdicts"] if v["metric"] in TOLERANCES}


def same(body, _):
    return told(body)


def other_in_the_long_half(body, _):
    """Half of the prompts get another token from the third on."""
    return told(
        body, token=(lambda n: 9000 if n > 1 else len(body["prompt"]) + n) if len(body["prompt"]) > 20 else None
    )


def test_equal_answers_pass_and_an_engine_is_asked_once_a_session(served, suite):
    result, records, server = served(same, "--llmperf-save", "--llmperf-launches=2")
    assert result.ret == 0
    assert len(server.whole) == 8, "once, for two tests and two launches"
    assert [len(body["prompt"]) for body in server.whole] == sorted({len(body["prompt"]) for body in server.whole})
    assert all(body["max_tokens"] == OUTPUT_LEN and body["ignore_eos"] for body in server.whole)
    saved = records["test_one"]["outputs"]
    assert (saved["prompts"], saved["tokens"], saved["reason"]) == (8, 192, "nothing was gated")
    for path in (suite.folder / "baselines").rglob("*.json"):
        stored = json.loads(path.read_text())["outputs"]
        assert len(stored["answers"]) == 8
        assert stored["answers"][0].startswith("4:-0.5000:3.0000 5:-0.5000:3.0000 ")

    result, records, again = served(same)
    assert result.ret == 0
    assert [body["prompt"] for body in again.whole] == [body["prompt"] for body in server.whole]
    for record in records.values():
        assert {name: v["verdict"] for name, v in verdicts(record).items()} == dict.fromkeys(TOLERANCES, "pass")
        found = record["outputs"]
        assert (found["token_agreement"], found["logprob_difference"], found["ties"]) == (1, 0, 0)
        assert (found["first_difference"], found["compared_tokens"], found["reason"]) == (None, 192, None)


def test_other_answers_fail_the_test_and_the_sentence_says_where(served, suite):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    result, records, _ = served(other_in_the_long_half)
    result.assert_outcomes(failed=2)
    assert result.ret == 1
    record = records["test_one"]
    assert record["verdict"] == "regressed"
    assert {name: v["verdict"] for name, v in verdicts(record).items()} == {
        "token_agreement": "regressed",
        "logprob_difference": "pass",
    }
    # 4 prompts whole, 2 tokens of the 4 others.
    assert record["outputs"]["token_agreement"] == pytest.approx((4 * 24 + 4 * 2) / 192)
    assert record["outputs"]["first_difference"] == {"prompt": 5, "token": 3}
    result.stdout.fnmatch_lines(
        ["*token_agreement: regressed: answers differ: 54 % of the tokens agree (tolerance 10 %), first at token 3 of "
         "prompt 5"]
    )  # fmt: skip
    page = (suite.folder / "report/report.html").read_text()
    assert "answers differ: 54 % of the tokens agree" in page


def test_other_probabilities_fail_the_test(served):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    result, records, _ = served(lambda body, _: told(body, p=-0.7))
    result.assert_outcomes(failed=2)
    assert verdicts(records["test_one"])["logprob_difference"]["current"] == pytest.approx(0.2)
    result.stdout.fnmatch_lines(["*logprob_difference: regressed: log-probabilities differ: by 0.2 nat on average*"])


@pytest.mark.parametrize(
    ("arguments", "marker"),
    [
        (("-o", "llmperf_outputs_tolerance=token_agreement: 50%"), ""),
        ((), "@pytest.mark.llmperf(outputs={'token_agreement': 0.5})"),
        ((), "@pytest.mark.llmperf(outputs=False)"),
    ],
)
def test_tolerances_and_the_switch(served, arguments, marker):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    served.write(marker)
    result, records, _ = served(other_in_the_long_half, *arguments, "-k", "test_one")
    assert result.ret == 0
    assert records["test_one"]["verdict"] == "pass"
    assert (records["test_one"]["outputs"] is None) == ("False" in marker)
    assert (verdicts(records["test_one"]) == {}) == ("False" in marker)


def test_a_server_that_does_not_tell_its_tokens_is_measured_without_them(served):
    served(lambda *_: None, "--llmperf-save", "--llmperf-launches=1")
    result, records, server = served(same)
    assert result.ret == 0
    reasons = {v["reason"] for v in verdicts(records["test_one"]).values()}
    assert reasons == {"the baseline holds no answers (store them with --llmperf-save)"}
    assert records["test_one"]["outputs"]["tokens"] == 192

    result, records, server = served(lambda *_: None)
    assert result.ret == 0
    assert len(server.whole) == 1
    assert "HTTP 400: no such thing" in verdicts(records["test_one"])["token_agreement"]["reason"]
    assert records["test_one"]["outputs"]["prompts"] is None
    assert not [w for w in records["test_one"]["warnings"] if "answers" in w]


def test_answers_that_fail_to_come_are_a_warning_and_no_failure(served):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    result, records, _ = served(lambda *_: {"choices": []})
    assert result.ret == 0
    warnings = [w for w in records["test_one"]["warnings"] if "answers" in w]
    assert warnings == [
        "The answers to fixed prompts could not be taken: the server's answer holds no choice.",
        "The answers were not compared with the baseline's: the server's answer holds no choice.",
    ]


def test_without_a_baseline_answers_are_no_reason_to_fail(served):
    result, records, _ = served(same)
    result.assert_outcomes(failed=2)
    assert records["test_one"]["verdict"] == "no-baseline"
    assert {v["reason"] for v in verdicts(records["test_one"]).values()} == {"no baseline is stored"}


def test_answers_of_something_else_are_not_compared(served, suite):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    suite.write(SUITE.format(marker="").replace("batch=3", "batch=4"))
    _, records, _ = served(other_in_the_long_half, "-k", "test_one")
    assert records["test_one"]["verdict"] == "incomparable"
    assert {(v["verdict"], v["reason"]) for v in verdicts(records["test_one"]).values()} == {
        ("not-applicable", "the baseline was measured on something else")
    }


def test_equal_answers_alone_compare_nothing(served, monkeypatch):
    monkeypatch.setattr("pytest_llmperf.options.GATED", ("tpj",))  # nobody reads the power of this server
    served.write()
    served(same, "--llmperf-save", "--llmperf-launches=1", "-o", "llmperf_tolerance=")
    result, records, _ = served(same, "-o", "llmperf_tolerance=")
    result.assert_outcomes(failed=2)
    assert verdicts(records["test_one"])["token_agreement"]["verdict"] == "pass"
    assert records["test_one"]["verdict"] == "not-applicable"
    result.stdout.fnmatch_lines(["*compares nothing does not pass*"])


def test_a_damaged_answer_in_a_baseline_is_unusable(served, suite):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    (path,) = (suite.folder / "baselines").rglob("test_one.json")
    path.write_text(path.read_text().replace("4:-0.5000:3.0000", "4:NaN:3.0000"))
    result, _, _ = served(same, "-k", "test_one")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*test_one.json is unusable: outputs.answers*"])


def test_a_baseline_from_before_is_still_read(served, suite):
    served(same, "--llmperf-save", "--llmperf-launches=1")
    for path in (suite.folder / "baselines").rglob("*.json"):
        content = json.loads(path.read_text())
        del content["outputs"], content["digest"]
        path.write_text(json.dumps({**content, "digest": digest_of(content)}))
    assert served(same)[0].ret == 0


def test_a_simulated_engine_answers_nothing_and_says_so(suite):
    suite.run("--llmperf-save", "--llmperf-launches=1")
    suite.run().assert_outcomes(passed=4)
    record = suite.records()["test_decode[1]"]
    assert {v["verdict"] for v in verdicts(record).values()} == {"not-applicable"}
    assert record["outputs"]["reason"] == "a simulated engine generates nothing"
    assert record["warnings"] == []


# Taking


class Answering(ScriptedEngine):
    """Answers when it is asked as ``what`` says."""

    def __init__(self, what):
        super().__init__(tokens(0.1, 0.1))
        self.what = what

    async def outputs(self, prompts, length):
        if isinstance(self.what, Exception):
            raise self.what
        if self.what == "never":
            await asyncio.Event().wait()
        return self.what


def taken(what, timeout=5.0):
    pool = EnginePool(lambda *_: Answering(what))
    try:
        running = pool.get(SPEC)
        found = take(running, timeout=timeout)
        return found, pool.get(SPEC) is running
    finally:
        pool.close()


def test_what_the_engine_says_is_taken():
    answers = Outputs("p", (Answer((1,), (-1.0,), (None,)),))
    assert taken(answers) == (answers, True)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineError("vLLM died."), "vLLM died"),
        (RequestError("no."), "no"),
        (KeyError("logprobs"), "KeyError: 'logprobs'"),
    ],
)
def test_whatever_goes_wrong_becomes_a_reason_and_the_engine_is_started_again(error, reason):
    found, still_running = taken(error)
    assert found == Unavailable(reason, failed=True)
    assert not still_running


def test_an_engine_that_never_answers_is_given_up_and_stays():
    found, still_running = taken("never", timeout=5.0)
    assert found == Unavailable("they did not come within 5 s", failed=True)
    assert still_running


# Judging


def answers(*ids, prompts="p"):
    return Outputs(prompts, (Answer(ids, (-1.0,) * len(ids), (5.0,) * len(ids)),))


@pytest.mark.parametrize(("tolerance", "verdict"), [(0.5, "pass"), (0.49, "regressed"), (0.0, "regressed")])
def test_the_threshold_itself_is_tolerated(tolerance, verdict):
    judged = judge({"token_agreement": tolerance}, answers(1, 2), answers(1, 3), absent="")
    assert [c.verdict for c in judged.comparisons] == [verdict]


def test_other_prompts_are_not_compared_and_a_reader_is_told():
    judged = judge(TOLERANCES, answers(1), answers(1, prompts="q"), absent="")
    assert {c.verdict for c in judged.comparisons} == {"not-applicable"}
    assert judged.warnings == (
        "The answers were not compared with the baseline's: the baseline holds answers to other prompts.",
    )


def test_dummy_weights_against_a_baseline_of_real_ones_are_told():
    judged = judge(TOLERANCES, answers(1), Unavailable("the weights are dummies"), absent="")
    assert judged.warnings == ("The answers were not compared with the baseline's: the weights are dummies.",)
    assert judge(TOLERANCES, None, Unavailable("the weights are dummies"), absent="").warnings == ()
