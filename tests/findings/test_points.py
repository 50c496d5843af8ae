"""Where tests lie, and which of them are points at all."""

import pytest

from pytest_llmperf.findings.points import distinct, group, one_clock, points_of
from tests.findings.records import case, metric, results


def axes_of(*tests, **more):
    return [point.axes for point in points_of(results(*tests, **more))]


def measured(nodeid, **where):
    return case(nodeid, values={"tpot": 0.01}, **where)


def test_a_point_knows_where_it_lies():
    [axes] = axes_of(
        measured(
            "a", batch=16, input_len=1, clock=900.0,
            engine={"quantization": "fp8", "args": {"enforce_eager": True, "num_gpu_blocks": 7, "max_num_seqs": 64}},
        )
    )  # fmt: skip
    assert (axes.load, axes.size, axes.input_len, axes.output_len, axes.clock) == ("batch", 16, 1, 256, 900)
    assert (axes.quantization, axes.enforce_eager) == ("fp8", True)
    assert axes.other == '{"max_num_seqs": 64}'


@pytest.mark.parametrize(
    ("work", "load", "size"),
    [({"concurrency": 4}, "concurrency", 4), ({"rate": 2.5}, "rate", 2.5), ({"trace": "t.jsonl"}, "trace", 0)],
)
def test_a_load_is_told_by_its_kind_and_size(work, load, size):
    [axes] = axes_of(measured("a", **work))
    assert (axes.load, axes.size) == (load, size)


def test_distributed_lengths_are_text():
    [axes] = axes_of(measured("a", input_len={"uniform": [64, 512]}, output_len={"lognormal": [64, 1.5, 1, 512]}))
    assert axes.input_len == "uniform 64-512"
    assert axes.output_len == "lognormal (64, 1.5, 1, 512)"
    [odd] = axes_of(measured("a", input_len={"mix": [[1, 2], None]}, output_len={"a": 1, "b": 2}))
    assert odd.input_len == "mix ([1, 2], null)"
    assert odd.output_len == '{"a": 1, "b": 2}'
    [empty] = axes_of(measured("a", input_len={"a": None}, output_len={"a": [True, "b"]}))
    assert empty.input_len == "a"
    assert empty.output_len == "a (true, b)"


def test_what_measured_nothing_comparable_is_no_point():
    searched = {"low": 1, "high": 2, "attainment": 0.9, "precision": 0.1, "seconds": 1, "trials": []}
    assert (
        axes_of(
            measured("invalid", record={"invalid": "the board was busy"}),
            measured("search", record={"search": searched}),
            measured("no workload", record={"workload": None}),
            measured("no engine", record={"engine": None}),
            case("no value", values={"tpot": None}),
            case("no load", values={"tpot": 1.0}, batch=None),
            case("odd load", values={"tpot": 1.0}, batch="many"),
        )
        == []
    )


def test_of_one_place_measured_twice_that_of_more_launches_counts():
    points = points_of(
        results(
            case("a", values={"tpot": 1.0}, batch=2), case("b", values={"tpot": (2.0, 2.0)}, batch=2),
            case("c", values={"tpot": (3.0, 3.0)}, batch=2),
        )
    )  # fmt: skip
    assert [point.test.nodeid for point in distinct(points)] == ["b"]


def test_a_group_differs_in_its_axes_only():
    swept = [measured(f"{b}{c}", batch=b, clock=c) for b in (1, 4) for c in (900.0, 750.0)]
    points = points_of(results(*swept, measured("x", batch=9)))
    groups = group(points, "clock")
    assert [[(p.axes.size, p.axes.clock) for p in members] for members in groups] == [
        [(1, 750), (1, 900)], [(4, 750), (4, 900)], [(9, None)],
    ]  # fmt: skip


def test_one_clock_is_the_free_one_or_else_the_highest():
    held = points_of(results(measured("a", clock=750.0), measured("b", clock=900.0)))
    assert [point.axes.clock for point in one_clock(held)] == [900]
    both = points_of(results(measured("a", clock=750.0), measured("b")))
    assert [point.axes.clock for point in one_clock(both)] == [None]


def test_values_that_have_no_logarithm_are_none():
    odd = case("a", values={"tpot": 1.0})
    odd["metrics"] |= {"power": metric("power", 0.0), "tpj": metric("tpj", 1.0, 0.0), "mbu": metric("mbu", None)}
    [point] = points_of(results(odd))
    assert point.value("power") is None
    assert point.value("mbu") is None
    assert point.value("nothing") is None
    assert point.launches("tpj") == ()
