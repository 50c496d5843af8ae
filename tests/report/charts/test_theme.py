"""Colours that can be read, by contrast as WCAG 2.1 defines it."""

import itertools

import pytest

from pytest_llmperf.report.charts import theme

PAPER = {False: "#ffffff", True: "#14171a"}


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_and_marks_stand_out(dark):
    config = theme(dark)
    text = [config[part][key] for part in ("axis", "legend") for key in ("labelColor", "titleColor")]
    text += [config["text"]["color"], *(config["style"][name]["color"] for name in ("mark-text", "note"))]
    assert min(contrast(colour, PAPER[dark]) for colour in text) >= 4.5
    marks = [*config["range"]["category"], *config["range"]["ordinal"]["scheme"]]
    marks += [config["style"][name]["color"] for name in ("mark", "mark-ring", "roof", "centre", "trace")]
    assert min(contrast(colour, PAPER[dark]) for colour in marks) >= 3


@pytest.mark.parametrize("dark", [False, True])
def test_a_value_can_be_read_in_every_cell(dark):
    config = theme(dark)
    assert min(contrast(config["text"]["color"], shade) for shade in config["range"]["heatmap"]) >= 4.5


def seen(colour, kind):
    """A colour as it is seen without one kind of cone (Machado, Oliveira and Fernandes 2009, severity 1)."""
    matrix = {
        "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
        "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    }[kind]
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return [sum(weight * c for weight, c in zip(row, linear, strict=True)) for row in matrix]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_the_first_categories_differ_for_colour_blind_readers(dark, kind):
    # Run and baseline, prefill and decode: what is told apart by hue alone somewhere.
    for one, other in itertools.combinations(theme(dark)["range"]["category"][:2], 2):
        apart = [abs(a - b) for a, b in zip(seen(one, kind), seen(other, kind), strict=True)]
        assert max(apart) > 0.15


def test_both_themes_have_the_same_names():
    def names(node):
        return {key: names(value) for key, value in node.items()} if isinstance(node, dict) else None

    assert names(theme(dark=True)) == names(theme(dark=False))
