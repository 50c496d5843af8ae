"""Numbers and names in sentences."""

import pytest

from pytest_llmperf.findings.telling import change, listed, ratio, share, short, slug


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("/models/mistral-7b/", "mistral-7b"),
        ("./m", "m"),
        ("mistralai/Mistral-7B-v0.1", "mistralai/Mistral-7B-v0.1"),
        ("a\nb", "a\\nb"),
        ("/", "/"),
        ("x" * 100, "x" * 60 + "…"),
    ],
)
def test_a_name_is_short_and_on_one_line(name, told):
    assert short(name) == told


@pytest.mark.parametrize(
    ("value", "told"), [(64.2, "64.2"), (140.4, "140"), (0.9996, "1.0"), (0.123, "0.12"), (float("inf"), "-")]
)
def test_how_many_times(value, told):
    assert ratio(value) == told


@pytest.mark.parametrize(("value", "told"), [(0.133, "13 %"), (0.0999, "10 %"), (0.018, "1.8 %"), (0.0, "0 %")])
def test_a_share(value, told):
    assert share(value) == told


def test_no_change_has_no_sign():
    assert change(1.0, 1.0) == "0.0 %"
    assert change(1.0, 0.9999) == "0.0 %"
    assert change(2.0, 3.0) == "+50.0 %"


def test_lists_and_anchors():
    assert listed([]) == ""
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert slug("Prefill of 512", "", "<b>é/x</b>", "v0.1") == "prefill-of-512-b-x-b-v0.1"
