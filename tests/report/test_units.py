"""How numbers are printed, whatever number it is."""

import math

import pytest

from pytest_llmperf.report.units import format_change, format_value, shortened


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00467, "s", "4.670 ms"),
        (0.0, "s", "0 s"),
        (None, "s", "-"),
        (math.inf, "s", "-"),
        (math.nan, "1", "-"),
        (1e308, "s", "1e+308 s"),
        (-1e308, "tokens/s", "-1e+308 tokens/s"),
        (1e308, "J", "1e+296 TJ"),
        (1e-308, "s", "1e-299 ns"),
        (5e-324, "tokens/J", "4.94e-324 tokens/J"),
        (0.614, "1", "61.4%"),
        (4.27e12, "B/s", "4.270 TB/s"),
        (8.558e14, "FLOP/s", "855.8 TFLOP/s"),
        (1e308, "1", "over 1,000,000%"),
        (-1e308, "1", "below -1,000,000%"),
    ],
)
def test_a_value(value, unit, text):
    assert format_value(value, unit) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (0.072, "+7.2 %"),
        (-0.9, "-90.0 %"),
        (12.5, "+1,250 %"),
        (1e308, "over +1,000,000 %"),
        (math.inf, "over +1,000,000 %"),
        (-1e308, "below -1,000,000 %"),
        (None, "-"),
    ],
)
def test_a_change(change, text):
    assert format_change(change) == text


def test_a_long_name_is_cut_in_its_middle_and_cannot_act():
    assert shortened("test_one[16]") == "test_one[16]"
    cut = shortened("test_one[" + "x" * 10_000 + "-16]")
    assert len(cut) == 100
    assert cut.startswith("test_one[x")
    assert cut.endswith("x-16]")
    assert "…" in cut
    assert shortened("a\x1b[31mb") == "a\\x1b[31mb"
    assert len(shortened("\x00" * 50)) == 100
