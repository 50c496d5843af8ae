"""Histograms of Prometheus: exact means, and quantiles within the bucket of the true ones."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.histogram import Histogram


class TestQuantiles:
    def test_they_are_interpolated_within_their_bucket(self):
        uniform = Histogram({1.0: 10, 2.0: 20, math.inf: 20}, 20, 20)
        assert uniform.quantile(0.5) == 1.0
        assert uniform.quantile(0.75) == pytest.approx(1.5)

    def test_beyond_the_largest_bound_nothing_is_known(self):
        assert Histogram({1.0: 1, math.inf: 2}, 2, 50).quantile(0.99) is None

    def test_they_never_exceed_what_the_mean_allows(self):
        assert Histogram({0.3: 100, math.inf: 100}, 100, 0.001).quantile(0.5) <= 2e-5

    def test_without_values_there_is_none(self):
        assert Histogram({1.0: 0, math.inf: 0}, 0, 0).quantile(0.5) is None
        assert Histogram({}, 0, 0).mean() is None

    @given(
        st.lists(st.floats(0, 100), min_size=1, max_size=60),
        st.lists(st.floats(0.001, 99), min_size=1, max_size=12, unique=True),
        st.sampled_from([0.5, 0.9, 0.99]),
    )
    def test_a_quantile_lies_in_the_bucket_of_the_true_one(self, values, bounds, q):
        bounds = [*sorted(bounds), math.inf]
        found = Histogram({b: sum(v <= b for v in values) for b in bounds}, len(values), math.fsum(values)).quantile(q)
        true = sorted(values)[math.ceil(q * len(values)) - 1]
        upper = next(b for b in bounds if true <= b)
        lower = max((b for b in bounds if b < true), default=0.0)
        if math.isinf(upper):
            assert found is None
        else:
            assert lower * (1 - 1e-9) <= found <= upper * (1 + 1e-9)
