from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pytest_llmperf
from pytest_llmperf.errors import WorkloadError
from pytest_llmperf.workload import Distribution, TraceRequest, Workload

TRACE = [
    {"arrival": 0.0, "input_len": 4, "output_len": 2},
    {"arrival": 0.5, "input_len": 8, "output_len": 3},
    {"arrival": 2.0, "input_len": 2, "output_len": 9},
]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, TRACE)) + "\n")
    return path


class TestDefaults:
    def test_the_default_is_a_batch_of_one(self):
        workload = Workload()
        assert (workload.input_len, workload.output_len, workload.batch) == (512, 256, 1)
        assert (workload.loop, workload.request_count, workload.longest) == ("batch", 1, 768)

    @pytest.mark.parametrize(
        ("given", "loop", "count"),
        [
            ({"batch": 4}, "batch", 4),
            ({"batch": 4, "requests": 12}, "batch", 12),
            ({"concurrency": 4}, "closed", 32),
            ({"concurrency": 4, "requests": 5}, "closed", 5),
            ({"rate": 2}, "open", 60),
            ({"rate": 0.01}, "open", 1),
            ({"rate": 2, "requests": 7}, "open", 7),
        ],
    )
    def test_the_way_to_load_decides_the_loop_and_the_count(self, given, loop, count):
        workload = Workload(**given)
        assert (workload.loop, workload.request_count) == (loop, count)

    def test_the_longest_request_counts_the_bounds_of_distributions(self):
        workload = Workload({"uniform": [1, 100]}, {"choice": [5, 50, 7]})
        assert workload.longest == 150

    def test_the_package_hands_the_class_on(self):
        assert pytest_llmperf.Workload is Workload
        assert pytest_llmperf.Distribution is Distribution

    def test_nothing_can_be_changed_afterwards(self):
        workload = Workload(sampling={"top_p": 0.9}, slo={"ttft": 1})
        with pytest.raises(AttributeError):
            workload.batch = 2
        with pytest.raises(TypeError):
            workload.slo["ttft"] = 2
        with pytest.raises(TypeError):
            workload.sampling["top_p"] = 1

    def test_changing_the_mapping_that_was_given_changes_nothing(self):
        limits = {"ttft": 1.0}
        workload = Workload(slo=limits)
        limits["ttft"] = 9.0
        assert workload.slo == {"ttft": 1.0}


COUNTS = ("input_len", "output_len", "batch", "concurrency", "requests", "max_batch")
NO_COUNT = (0, -1, 1.0, "4", True, float("nan"))
NO_NUMBER = (0, -0.5, "1", True, float("nan"), float("inf"), pytest.param(10**400, id="huge"))


class TestWrongValues:
    @pytest.mark.parametrize("value", NO_COUNT)
    @pytest.mark.parametrize("name", COUNTS)
    def test_counts_are_whole_numbers_from_one_up(self, name, value):
        with pytest.raises(WorkloadError, match=name):
            Workload(**{name: value})

    @pytest.mark.parametrize("value", [-1, 1.0, "0", True, None])
    @pytest.mark.parametrize("name", ["warmup", "seed", "shared_prefix"])
    def test_other_counts_are_whole_numbers_from_zero_up(self, name, value):
        with pytest.raises(WorkloadError, match=name):
            Workload(**{name: value})

    @pytest.mark.parametrize("value", NO_NUMBER)
    @pytest.mark.parametrize("name", ["rate", "max_wait"])
    def test_rates_and_times_are_finite_and_above_zero(self, name, value):
        with pytest.raises(WorkloadError, match=name):
            Workload(**{name: value})

    @pytest.mark.parametrize("value", NO_NUMBER)
    def test_limits_are_finite_and_above_zero(self, value):
        with pytest.raises(WorkloadError, match="slo"):
            Workload(slo={"ttft": value})

    def test_limits_are_on_latencies(self):
        with pytest.raises(WorkloadError, match=r"slo has no metric 'throughput'.*ttft, tpot, itl, e2e_latency"):
            Workload(slo={"throughput": 3})

    @pytest.mark.parametrize("value", [[("a", 1)], {1: 2}, None, "temperature"])
    @pytest.mark.parametrize("name", ["sampling", "slo"])
    def test_mappings_go_from_names_to_values(self, name, value):
        with pytest.raises(WorkloadError, match=name):
            Workload(**{name: value})

    @pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
    def test_sampling_holds_what_a_record_can_keep(self, value):
        with pytest.raises(WorkloadError, match="sampling"):
            Workload(sampling={"stop": value})

    @pytest.mark.parametrize(
        "arrival", ["uniform", "", "gamma", "gamma:", "gamma:0", "gamma:-1", "gamma:nan", "gamma:inf", "gamma:x",
                    "poisson:2", "poisson:", "constant:1", None, 3],
    )  # fmt: skip
    def test_an_arrival_that_is_none_is_refused(self, arrival):
        with pytest.raises(WorkloadError, match="arrival"):
            Workload(rate=1, arrival=arrival)

    @pytest.mark.parametrize("policy", ["", "Static", None, ["static"]])
    def test_a_policy_that_is_none_is_refused(self, policy):
        with pytest.raises(WorkloadError, match=r"policy=.*continuous, static, dynamic"):
            Workload(rate=1, policy=policy)


class TestContradictions:
    @pytest.mark.parametrize(
        ("given", "named"),
        [
            ({"batch": 2, "rate": 1}, "batch and rate"),
            ({"batch": 2, "concurrency": 2}, "batch and concurrency"),
            ({"concurrency": 2, "rate": 1, "trace": "x"}, "concurrency and rate and trace"),
            ({"batch": 4, "requests": 6}, "requests=6"),
            ({"concurrency": 4, "requests": 3}, "requests=3"),
            ({"arrival": "constant"}, "arrival='constant'"),
            ({"concurrency": 2, "arrival": "gamma:1"}, "arrival='gamma:1'"),
            ({"policy": "static", "max_batch": 2}, "policy='static'"),
            ({"concurrency": 4, "policy": "dynamic", "max_batch": 2, "max_wait": 1}, "policy='dynamic'"),
            ({"rate": 1, "policy": "static"}, "max_batch"),
            ({"rate": 1, "policy": "dynamic", "max_batch": 2}, "max_wait"),
            ({"rate": 1, "policy": "dynamic", "max_wait": 2}, "max_batch"),
            ({"rate": 1, "policy": "static", "max_batch": 2, "max_wait": 1}, "max_wait"),
            ({"rate": 1, "max_wait": 1}, "max_wait"),
            ({"rate": 1, "max_batch": 4}, "max_batch"),
            ({"shared_prefix": 512}, "shared_prefix=512"),
            ({"input_len": 8, "shared_prefix": 9}, "shared_prefix=9"),
            ({"input_len": {"uniform": [1, 8]}, "shared_prefix": 8}, "shared_prefix=8"),
        ],
    )
    def test_two_values_that_contradict_each_other_are_refused_and_named(self, given, named):
        with pytest.raises(WorkloadError) as refused:
            Workload(**given)
        assert named in str(refused.value)
        assert str(refused.value).endswith(".")

    @pytest.mark.parametrize(
        "given",
        [
            {"rate": 1, "policy": "static", "max_batch": 4},
            {"rate": 1, "policy": "dynamic", "max_batch": 4, "max_wait": 0.1},
            {"rate": 1, "arrival": "gamma:0.5"},
            {"rate": 1, "arrival": "constant"},
            {"input_len": 8, "shared_prefix": 7},
            {"input_len": {"uniform": [1, 8]}, "shared_prefix": 7},
        ],
    )
    def test_what_fits_together_is_taken(self, given):
        assert Workload(**given).digest


class TestLengths:
    @pytest.mark.parametrize(
        ("length", "high"),
        [
            ({"uniform": [1, 9]}, 9),
            ({"normal": [5, 2.5, 1, 9]}, 9),
            ({"lognormal": [5, 0.5, 1, 9]}, 9),
            ({"choice": [3, 9, 4]}, 9),
            ({"choice": [7]}, 7),
        ],
    )
    def test_the_json_form_is_the_distribution(self, length, high):
        ((kind, values),) = length.items()
        workload = Workload(input_len=length)
        assert workload.input_len == Distribution(kind, tuple(values))
        assert workload.input_len.high == high
        assert Workload(input_len=workload.input_len.to_json()) == workload

    @pytest.mark.parametrize("name", ["input_len", "output_len"])
    @pytest.mark.parametrize(
        "length",
        [
            {"zipf": [1, 2]},
            {"uniform": [9, 1]},
            {"uniform": [0, 1]},
            {"uniform": [1]},
            {"uniform": [1.5, 2]},
            {"uniform": ["1", "2"]},
            {"uniform": 5},
            {"uniform": None},
            {"choice": []},
            {"choice": [1, 0]},
            {"normal": [5, -1, 1, 9]},
            {"normal": [50, 1, 1, 9]},
            {"normal": [5, float("inf"), 1, 9]},
            {"lognormal": [0, 1, 1, 9]},
            {"lognormal": [5, float("nan"), 1, 9]},
            {"uniform": [1, 2], "choice": [1]},
            {},
            None,
            [1, 2],
        ],
    )
    def test_a_length_that_makes_no_sense_is_refused_and_named(self, name, length):
        with pytest.raises(WorkloadError, match=name):
            Workload(**{name: length})

    def test_a_distribution_made_by_hand_is_checked_too(self):
        with pytest.raises(WorkloadError, match="uniform"):
            Distribution("uniform", (9, 1))


class TestReplace:
    def test_a_copy_differs_in_what_was_changed(self):
        before = Workload(1, 256, warmup=2, slo={"tpot": 0.1})
        after = before.replace(output_len=8)
        assert (after.input_len, after.output_len, after.warmup, dict(after.slo)) == (1, 8, 2, {"tpot": 0.1})
        assert before.output_len == 256

    @pytest.mark.parametrize("load", [{"batch": 3}, {"concurrency": 3}, {"rate": 3}])
    @pytest.mark.parametrize("before", [{"batch": 2}, {"concurrency": 2}, {"rate": 2}])
    def test_one_way_to_load_drops_the_other(self, before, load):
        assert Workload(**before).replace(**load) == Workload(**load)

    def test_a_trace_drops_the_batch_and_is_dropped_by_one(self, trace):
        replay = Workload().replace(trace=trace)
        assert (replay.batch, replay.request_count) == (None, 3)
        assert replay.replace(batch=2) == Workload(batch=2)

    def test_the_copy_is_validated_again(self):
        with pytest.raises(WorkloadError, match="requests=4"):
            Workload(batch=2, requests=4).replace(batch=3)
        with pytest.raises(WorkloadError, match="batch and rate"):
            Workload().replace(batch=2, rate=1)

    def test_a_field_that_does_not_exist_is_refused_with_those_that_do(self):
        with pytest.raises(WorkloadError, match=r"no field 'batch_size'.*\bbatch\b"):
            Workload().replace(batch_size=4)

    def test_nothing_changed_is_the_same_work(self):
        workload = Workload(rate=2, arrival="gamma:2", policy="static", max_batch=3)
        assert workload.replace() == workload


class TestTrace:
    def test_requests_come_in_the_order_of_their_arrival(self, tmp_path):
        path = tmp_path / "t.jsonl"
        path.write_text("\n\n".join(map(json.dumps, reversed(TRACE))))
        workload = Workload(trace=path)
        assert workload.replay == tuple(TraceRequest(**line) for line in TRACE)
        assert (workload.loop, workload.request_count, workload.longest) == ("open", 3, 11)

    def test_requests_takes_the_first_ones(self, trace):
        assert Workload(trace=trace, requests=2).replay == tuple(TraceRequest(**line) for line in TRACE[:2])

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "holds no request"),
            ("\n \n", "holds no request"),
            ('{"arrival": 0, "input_len": 4, "output_len": 2}\n{', "line 2 of"),
            ('{"arrival": 0, "input_len": 4}', "line 1 of .*output_len"),
            ("[1, 2, 3]", "line 1 of"),
            ("null", "line 1 of"),
            ('{"arrival": -1, "input_len": 4, "output_len": 2}', "line 1 of .*arrival"),
            ('{"arrival": NaN, "input_len": 4, "output_len": 2}', "line 1 of .*arrival"),
            ('{"arrival": 1e999, "input_len": 4, "output_len": 2}', "line 1 of .*arrival"),
            ('{"arrival": "0", "input_len": 4, "output_len": 2}', "line 1 of .*arrival"),
            ('{"arrival": 0, "input_len": 0, "output_len": 2}', "line 1 of .*input_len"),
            ('{"arrival": 0, "input_len": 4, "output_len": 2.5}', "line 1 of .*output_len"),
        ],
    )
    def test_a_line_that_is_no_request_is_refused_by_number(self, tmp_path, text, message):
        path = tmp_path / "broken.jsonl"
        path.write_text(text)
        with pytest.raises(WorkloadError, match=message) as refused:
            Workload(trace=path)
        assert str(path) in str(refused.value)

    @pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
    def test_a_file_that_cannot_be_read_is_named(self, tmp_path, content):
        path = tmp_path / "t.jsonl"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(WorkloadError, match=r"trace: .*t\.jsonl"):
            Workload(trace=path)

    def test_asking_for_more_than_the_file_holds_is_refused(self, trace):
        with pytest.raises(WorkloadError, match="requests=4"):
            Workload(trace=trace, requests=4)

    @pytest.mark.parametrize("lengths", [{"input_len": 4}, {"output_len": 4}])
    def test_lengths_beside_a_trace_are_refused(self, trace, lengths):
        with pytest.raises(WorkloadError, match="trace brings its own lengths"):
            Workload(trace=trace, **lengths)

    def test_a_shared_prefix_is_measured_against_the_lengths_of_the_trace(self, tmp_path):
        path = tmp_path / "long.jsonl"
        path.write_text('{"arrival": 0, "input_len": 2000, "output_len": 2}')
        assert Workload(trace=path, shared_prefix=1000).shared_prefix == 1000
        with pytest.raises(WorkloadError, match="shared_prefix=2000"):
            Workload(trace=path, shared_prefix=2000)


class TestDigest:
    @pytest.mark.parametrize(
        ("given", "digest"),
        [
            ({}, "932fc667e491aeaf"),
            ({"batch": 16}, "e1f880a8b96bbe6e"),
            ({"input_len": 1}, "ee7f07e6dc7df7bc"),
            ({"concurrency": 8, "seed": 3}, "2b4c09f727801081"),
            ({"rate": 2.5, "arrival": "gamma:0.5", "requests": 40}, "3a83eb3acd16361b"),
            (
                {"input_len": {"normal": [512, 64.5, 1, 1024]}, "rate": 1, "policy": "static", "max_batch": 4},
                "0e2ca87e6b4eea92",
            ),
            ({"sampling": {"top_p": 0.9, "stop": ["é"]}, "shared_prefix": 100}, "3ca556a59ba04e00"),
        ],
    )
    def test_the_digest_never_changes(self, given, digest):
        # Baselines are stored under it: a change here makes every stored baseline incomparable.
        assert Workload(**given).digest == digest

    def test_the_digest_of_a_trace_never_changes(self, trace):
        assert Workload(trace=trace).digest == "48bd6c9757b6ed32"

    def test_limits_judge_the_work_and_are_no_part_of_it(self):
        assert Workload(slo={"ttft": 1}).digest == Workload().digest
        assert Workload(slo={"ttft": 1}) != Workload()

    def test_a_trace_counts_by_its_content(self, tmp_path, trace):
        elsewhere = tmp_path / "elsewhere.jsonl"
        elsewhere.write_bytes(trace.read_bytes())
        assert Workload(trace=elsewhere).digest == Workload(trace=trace).digest
        elsewhere.write_text(trace.read_text().replace("0.5", "0.6"))
        assert Workload(trace=elsewhere).digest != Workload(trace=trace).digest

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"rate": 2}, {"rate": 2.0}),
            (
                {"rate": 2, "policy": "dynamic", "max_batch": 2, "max_wait": 1},
                {"rate": 2, "policy": "dynamic", "max_batch": 2, "max_wait": 1.0},
            ),
            ({"input_len": {"normal": [8, 2, 1, 9]}}, {"input_len": {"normal": [8.0, 2.0, 1, 9]}}),
            ({"sampling": {"a": 1, "b": 2}}, {"sampling": {"b": 2, "a": 1}}),
            ({}, {"batch": 1}),
        ],
    )
    def test_the_same_work_written_otherwise_has_the_same_digest(self, one, other):
        assert Workload(**one).digest == Workload(**other).digest
        assert Workload(**one) == Workload(**other)

    def test_every_other_field_makes_other_work(self):
        dynamic = {"rate": 1, "policy": "dynamic", "max_batch": 2, "max_wait": 1}
        variants = [
            {},
            {"input_len": 8},
            {"output_len": 8},
            {"input_len": {"uniform": [8, 9]}},
            {"input_len": {"choice": [8, 9]}},
            {"batch": 2},
            {"concurrency": 2},
            {"rate": 1},
            {"rate": 1, "arrival": "constant"},
            {"rate": 1, "arrival": "gamma:2"},
            {"requests": 2},
            dynamic,
            dynamic | {"max_batch": 3},
            dynamic | {"max_wait": 3},
            {"rate": 1, "policy": "static", "max_batch": 2},
            {"warmup": 2},
            {"seed": 2},
            {"shared_prefix": 2},
            {"sampling": {"top_k": 1}},
        ]
        assert len({Workload(**given).digest for given in variants}) == len(variants)


lengths = st.integers(1, 10**6) | st.lists(st.integers(1, 999), min_size=1, max_size=4).map(lambda v: {"choice": v})
workloads = st.builds(
    lambda load, **fields: Workload(**load, **fields),
    load=st.fixed_dictionaries({"batch": st.integers(1, 10**4)})
    | st.fixed_dictionaries({"concurrency": st.integers(1, 10**4)})
    | st.fixed_dictionaries(
        {"rate": st.floats(1e-3, 1e6) | st.integers(1, 100), "arrival": st.sampled_from(["poisson", "gamma:0.3"])}
    ),
    input_len=lengths,
    output_len=lengths,
    seed=st.integers(0, 2**64),
    warmup=st.integers(0, 5),
    sampling=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5) | st.booleans(), max_size=3),
    slo=st.dictionaries(st.sampled_from(["ttft", "tpot", "itl", "e2e_latency"]), st.floats(1e-6, 1e6)),
)


class TestCopies:
    @pytest.mark.parametrize(
        "duplicate",
        [copy.copy, copy.deepcopy, lambda w: pickle.loads(pickle.dumps(w)), lambda w: Workload(**w.to_json()),
         lambda w: Workload(**json.loads(json.dumps(w.to_json())))],
    )  # fmt: skip
    @given(workload=workloads)
    def test_a_copy_is_equal_and_hashes_alike(self, duplicate, workload):
        again = duplicate(workload)
        assert again == workload
        assert hash(again) == hash(workload)
        assert again.digest == workload.digest
        assert again.to_json() == workload.to_json()

    def test_a_replay_can_be_copied(self, trace):
        workload = Workload(trace=trace, requests=2)
        again = pickle.loads(pickle.dumps(workload))
        assert again == workload
        assert again.replay == workload.replay

    def test_workloads_can_be_keys(self):
        assert {Workload(batch=2): "two"}[Workload().replace(batch=2)] == "two"

    def test_a_workload_equals_nothing_else(self):
        assert Workload() != "workload"
