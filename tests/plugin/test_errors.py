"""Wrong options and impossible work: one sentence with the remedy, never a traceback of ours."""

from fnmatch import fnmatch

import pytest

MEASURE = "from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.measure(Workload({0}))"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--llmperf-engine=vlm"], "*there is no engine 'vlm'*Use one of: auto, vllm*"),
        (["--llmperf-engine=sim:h200,seed"], "*'seed' is no key=value argument*"),
        (["--llmperf-engine=sim:h200", "--llmperf-model=./nowhere"], "*'./nowhere' is no folder*mistral-7b*"),
        (["--llmperf-engine=sim:h200", "--llmperf-repeats=0"], "*--llmperf-repeats*at least 1*"),
        (["--llmperf-engine=sim:h200,slow=2"], "*has no setting 'slow'*slowdown*"),
        (["--llmperf-engine=sim:h200,slowdown=0"], "*slowdown*cannot be 0*"),
        (["--llmperf-engine=sim:h200", "-o", "llmperf_tolerance=ttft: lots"], "*tolerance is like '3%'*'lots'*"),
        (["--llmperf-engine=sim:h200", "-o", "llmperf_tolerance=ttfft: 3%"], "*'ttfft', which does not exist*"),
        (["--llmperf-engine=sim:h200", "-o", "llmperf_read_timeout=soon"], "*llmperf_read_timeout*number*'soon'*"),
        (["--llmperf-engine=http://127.0.0.1:9", "--gpu-clock=900"], "*no GPU whose clock could be held at 900 MHz*"),
    ],
)
def test_wrong_options_end_with_exit_status_4_and_one_sentence(suite, arguments, sentence):
    suite.write(MEASURE.format("4, 4"))
    result = suite.pytester.runpytest(*arguments)
    assert result.ret == 4
    lines = result.stdout.lines + result.stderr.lines
    assert any(fnmatch(line, sentence) for line in lines), lines
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        ("tolerence={'ttft': '3%'}", "*has no argument 'tolerence'*tolerance, model, engine*"),
        ("'3%'", "*takes named arguments only*"),
        ("tolerance={'ttfft': '3%'}", "*names the metric 'ttfft'*"),
        ("tolerance={'ttft': '-3%'}", "*tolerance of ttft*'-3%'*"),
        ("model=7", "*model is a name or a path, not 7*"),
        ("model='nothing-of-the-kind'", "*is no folder*"),
        ("engine=['x']", "*engine is a mapping*"),
    ],
)
def test_wrong_markers_name_the_test(suite, marker, sentence):
    suite.write(f"import pytest\npytestmark = pytest.mark.llmperf({marker})\n" + MEASURE.format("4, 4"))
    result = suite.run()
    assert result.ret == 4
    result.stderr.fnmatch_lines([sentence])


def test_auto_without_a_gpu_in_ci_is_an_error(suite, monkeypatch):
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    suite.write(MEASURE.format("4, 4"))
    result = suite.run(engine="auto")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["*no GPU is visible*in CI*--llmperf-engine*"])


def test_a_workload_beyond_the_models_context_fails_with_the_remedy(suite):
    suite.write(MEASURE.format("40000, 4"))
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*longest request has 40004 tokens and mistral-7b serves 32768*Shorten input_len*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert suite.records()["test_one"]["verdict"] == "invalid"


def test_a_contradictory_workload_names_the_fields(suite):
    suite.write(MEASURE.format("4, 4, batch=2, rate=3"))
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*batch and rate were given together*"])


def test_a_wrong_engine_argument_of_a_marker_fails_only_its_test(suite):
    suite.write(
        "import pytest\n" + MEASURE.format("4, 4") + "\n"
        "@pytest.mark.llmperf(engine={'nonsense': 1})\n" + MEASURE.format("4, 4").splitlines()[1].replace("one", "two")
    )
    result = suite.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*has no setting 'nonsense'*"])


def test_a_check_of_something_else_than_a_workload_is_refused(suite):
    suite.write("def test_one(llmperf): llmperf.check({'batch': 1})")
    result = suite.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*take a Workload*"])


def test_a_report_folder_that_cannot_be_written_is_named(suite):
    suite.write(MEASURE.format("4, 4"))
    (suite.folder / "report").write_text("a file where the folder should be")
    result = suite.pytester.runpytest("--llmperf-engine=sim:h200", "--llmperf-report=report")
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    assert "report" in text
    assert "--llmperf-report" in text
