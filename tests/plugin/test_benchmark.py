"""A measured test is also a pytest-benchmark record, through that plugin's own API."""

import json

ONE = "from pytest_llmperf import Workload\ndef test_one(llmperf): llmperf.measure(Workload(4, 4))"


def test_the_record_holds_the_measured_times_and_the_metrics(suite):
    suite.write(ONE)
    suite.run("--llmperf-launches=2", "--llmperf-repeats=3", "--benchmark-json=benchmark.json").assert_outcomes(
        passed=1
    )
    (record,) = json.loads((suite.folder / "benchmark.json").read_text())["benchmarks"]
    measured = suite.records()["test_one"]
    assert record["stats"]["rounds"] == 6
    # A repeat of one request lasts as long as that.
    assert abs(record["stats"]["median"] - measured["metrics"]["e2e_latency"]["value"]) < 1e-9
    assert record["extra_info"]["llmperf"]["tpot"] == measured["metrics"]["tpot"]["value"]


def tables(result):
    return sum("Name (time in" in line for line in result.stdout.lines)


def test_the_benchmark_table_does_not_repeat_ours(suite):
    suite.write(ONE)
    assert tables(suite.run()) == 0


def test_the_benchmark_table_is_printed_once_where_it_is_asked_for(suite):
    suite.write(ONE)
    assert tables(suite.run("--llmperf-launches=3", "--benchmark-columns=min,max")) == 1


def test_the_benchmark_table_of_a_users_own_test_is_left_alone(suite):
    suite.write(ONE + "\ndef test_own(benchmark): benchmark.pedantic(int, rounds=2)")
    result = suite.run()
    assert tables(result) == 1
    result.stdout.fnmatch_lines(["*StdDev*", "test_own *"])


def test_only_benchmarks_runs_performance_tests(suite):
    suite.write(ONE + "\ndef test_other(): pass")
    suite.run("--benchmark-only").assert_outcomes(passed=1, skipped=1)


def test_a_group_of_the_users_is_kept(suite):
    suite.write("import pytest\n" + ONE.replace("def test", "@pytest.mark.benchmark(group='mine')\ndef test"))
    suite.run("--benchmark-json=benchmark.json").assert_outcomes(passed=1)
    assert json.loads((suite.folder / "benchmark.json").read_text())["benchmarks"][0]["group"] == "mine"


def test_it_works_with_benchmarking_disabled_or_the_plugin_off(suite):
    suite.write(ONE)
    suite.run("--benchmark-disable", "-W", "error").assert_outcomes(passed=1)
    suite.run("-p", "no:benchmark").assert_outcomes(passed=1)


def test_a_failing_test_brings_no_warning_of_an_unused_benchmark(suite):
    suite.write(ONE.replace("4, 4", "90000, 4"))
    suite.run("-W", "error").assert_outcomes(failed=1)
