from __future__ import annotations

import pytest

from pytest_llmperf import baselines
from pytest_llmperf.baselines import Identity, differing, same_but_for_workload

from .records import IDENTITY, changed


class TestIdentity:
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("hardware", "NVIDIA H100"),
            ("device_count", 2),
            ("power_limit_w", 350.0),
            ("simulated", True),
            ("clock_mhz", 900),
            ("memory_clock_mhz", 2619),
            ("model", "tiny-llama"),
            ("model_digest", "ffffffffffff"),
            ("dtype", "float16"),
            ("quantization", "fp8"),
            ("kv_cache_dtype", "fp8"),
            ("tensor_parallel_size", 2),
            ("pipeline_parallel_size", 2),
            ("workload", "0000000000000000"),
        ],
    )
    def test_a_field_that_differs_is_named_with_both_values(self, name, value):
        before = getattr(IDENTITY, name)
        assert differing(IDENTITY, changed(**{name: value})) == [f"{name}: {before!r} in the baseline, {value!r} now"]

    def test_every_field_is_tried_above(self):
        marks = TestIdentity.test_a_field_that_differs_is_named_with_both_values.pytestmark
        assert {name for name, _ in marks[0].args[1]} == set(Identity.model_fields)

    def test_equal_identities_differ_in_nothing(self):
        assert differing(IDENTITY, changed()) == []

    def test_several_fields_are_all_named(self):
        assert len(differing(IDENTITY, changed(hardware="x", clock_mhz=1))) == 2

    def test_the_workload_alone_may_differ_within_a_group(self):
        assert same_but_for_workload(IDENTITY, changed(workload="0000000000000000"))
        assert not same_but_for_workload(IDENTITY, changed(workload="0000000000000000", dtype="float16"))


def test_the_package_hands_on_what_it_says():
    assert all(hasattr(baselines, name) for name in baselines.__all__)
