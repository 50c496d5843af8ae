from pytest_llmperf.report.page.columns import axes, axis_words, metric_columns

from ..records import ENGINE, metric, record, results

WORK = {"input_len": 512, "output_len": 256, "batch": 1, "digest": "0"}


def of(*records):
    return results(*records).tests


def test_an_axis_has_a_column_where_the_run_varies_along_it():
    tests = of(
        record("a", workload=WORK, clock={"locked_mhz": 900}),
        record("b", workload=WORK | {"batch": 16}, clock={"locked_mhz": 1200}),
        record("c", workload=WORK | {"batch": None, "rate": 2.5, "input_len": {"uniform": [64, 512]}}, clock={}),
        record("d", workload=None, engine=None, clock={}),
    )
    found = {axis.title: axis.cells for axis in axes(tests)}
    assert found == {
        "Prompt": (512, 512, "64 to 512", None),
        "Batch": (1, 16, None, None),
        "MHz": (900, 1200, "free", None),
    }


def test_what_all_tests_share_has_no_column():
    assert axes(of(record("a"), record("b"))) == []
    assert axes([]) == []


def test_models_and_gpus_are_axes():
    tests = of(
        record("a", engine=ENGINE | {"model": "org/llama-7b"}),
        record("b", engine=ENGINE | {"model": "org/llama-13b", "tensor_parallel_size": 2}),
    )
    found = {axis.title: (axis.cells, axis.is_number) for axis in axes(tests)}
    assert found == {"Model": (("llama-7b", "llama-13b"), False), "GPUs": ((1, 2), True)}


def test_a_filter_finds_where_a_test_lies_and_no_figure():
    (test,) = of(record("a", metrics={"ttft": metric("ttft", 0.089)}, clock={"locked_mhz": 900}))
    assert axis_words(test) == "900 MHz mistral-7b vllm NVIDIA H200 bfloat16 1 GPUs"


def test_the_least_important_metrics_give_way_first():
    few = metric_columns(of(record("a")), [])
    assert [column.metric for column in few if column.shown] == [
        "ttft", "tpot", "e2e_latency", "throughput", "mbu", "tpj",
    ]  # fmt: skip
    tests = of(*(
        record(f"t[{n}]", workload=WORK | {"batch": n, "input_len": 2 * n, "output_len": 3 * n},
               clock={"locked_mhz": 900 + n}, engine=ENGINE | {"model": f"a-model-{n}", "tensor_parallel_size": n})
        for n in (1, 2)
    ))  # fmt: skip
    columns = metric_columns(tests, axes(tests))
    assert [column.metric for column in columns] == [column.metric for column in few]
    hidden = [column.metric for column in columns if not column.shown]
    assert "mbu" in hidden
    assert "tpot" not in hidden
