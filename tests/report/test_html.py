"""The page on the new gate's verdicts: intervals, noise, anchors."""

import html
import json
import re

import pytest

from pytest_llmperf.errors import ResultsError
from pytest_llmperf.report.charts import strip
from pytest_llmperf.report.html import render
from pytest_llmperf.results import MetricValue, Results, VerdictRecord

from .records import (
    GATE,
    HOSTILE,
    IMPROVED,
    INCONCLUSIVE,
    NOISE,
    PASSED,
    REGRESSED,
    UNSTORED,
    metric,
    record,
    results,
    verdict,
)

OUR_SCRIPTS = {"<script", *(f'<script type="application/gzip" id="{name}"' for name in ("charts", "library", "record"))}


def words(page):
    """What a reader sees, in their order."""
    seen = re.sub(r"<(style|svg|script|noscript)\b.*?</\1>", "", page, flags=re.DOTALL)
    seen = re.sub(r"<(td|th)\b[^>]* hidden>[^<]*", "", seen)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", seen)).split())


def test_a_verdict_shows_what_it_stands_on():
    text = words(render(results(REGRESSED, gate=GATE)))
    assert (
        "tpot baseline regressed 4.000 ms 4.288 ms +7.2 % +6.1 to +8.4 % 5.0 % +7.1 % 3 / 5 0.60% used, own 0.40% "
        "(6 df), pooled 0.65% (28 df, 11 tests)" in text
    )
    assert "26 comparisons; an unchanged engine is called regressed in at most 1 run of 20" in text
    assert "0.2; a change beyond its tolerance passes" in text


def test_the_first_screen_is_the_verdict_and_the_worst_regression():
    page = render(results(PASSED, REGRESSED))
    assert re.search(r'<h1 id="verdict" class="headline bad">1 of 2 tests regressed.</h1>', page)
    text = words(page)
    assert "test_decode[16] regressed tpot 4.000 ms → 4.288 ms +7.2 % +6.1 to +8.4 %" in text
    assert text.index("4.288 ms +7.2 %") < text.index("Every test")


def test_the_first_screen_says_what_the_terminal_says_of_the_whole_run():
    warned = "The clock ran free and gave way for 40% of the time: 9 of 300 samples throttled (power cap)."
    text = words(render(results(record("t", warnings=[warned]), PASSED)))
    said = (
        "How often: 3 launches of 1 repeat a test. "
        "Power cap: the clock ran free and gave way in 1 of 2 tests, for 40 % of the time."
    )
    assert text.index("1 measured") < text.index(said) < text.index("Every test")


def test_an_anchor_is_told_apart_and_keeps_out_of_the_table_of_metrics():
    test = record(
        "t", verdict(change=0.01), verdict("tpot", "regressed", 0.2, against="anchor", saved_at="2026-03-01T0")
    )
    page = render(results(test))
    assert page.count('<tr class="anchor">') == 1
    assert "tpot anchor of 2026-03-01 regressed" in words(page)
    assert "tpot 4.040 ms +1.0 % pass" in words(page)


def test_both_tables_show_the_value_that_the_change_is_of():
    told = verdict("tpot", "pass", 0.0025, current=0.00401, launches=1)
    test = record("t", told, metrics={"tpot": metric("tpot", 0.00401, 0.0043, 0.0044), "ttft": metric("ttft", 0.021)})
    page = words(render(results(test)))
    assert "t pass +0.2 % tpot 21.00 ms 4.010 ms" in page
    assert "tpot 4.010 ms +0.2 % pass" in page
    assert "ttft 21.00 ms" in page
    assert "Of a metric that was gated it is the geometric mean of the launches on which the verdict stands" in page


def test_a_rate_within_the_limits_is_that_of_its_verdict():
    rate = {**metric("ttft", 4.0, 8.0, 9.0), "unit": "1/s", "better": "higher"}
    test = record("t", verdict("max_rate", "pass", 0.25, baseline=4.0, current=5.0), metrics={"max_rate": rate})
    assert "up to 5/s" in words(render(results(test)))


def test_advice_and_prediction_are_said():
    page = words(render(results(INCONCLUSIVE, record("t", verdict(launches=1, prediction=True)))))
    assert "tpot: If it is what it seems, 12 launches would decide." in page
    assert "-0.7 to +1.6 % (prediction)" in page
    assert "1 / 5" in page


@pytest.mark.parametrize("unknown", [None, NOISE | {"source": "unknown", "own_sd": None, "pooled_sd": None}])
def test_unknown_noise_is_said_to_be_unknown(unknown):
    text = words(render(results(record("t", verdict(interval=None, minimum_detectable=None, noise=unknown)))))
    assert "+0.4 % - 5.0 % - 3 / 5 unknown" in text


def test_a_record_of_an_older_version_is_shown():
    old = json.loads(results(REGRESSED, IMPROVED, UNSTORED).to_json())
    del old["gate"]
    for test in old["tests"]:
        for entry in test["verdicts"]:
            for name in ("against", "launches", "advice", "noise", "prediction", "saved_at"):
                del entry[name]
            entry |= {"interval": None, "minimum_detectable": None, "alpha": None, "looks": None}
    page = words(render(Results.model_validate(old)))
    assert "4.000 ms 4.288 ms +7.2 % - 5.0 % - \u2013 unknown" in page
    assert "How it was judged" not in page


def test_one_launch_is_one_launch():
    test = record("t", metrics={"tpot": metric("tpot", 0.004)})
    assert "; 1 launch, 3 of 3" in words(render(results(test)))
    assert "<title>1 repeat in 1 launch from" in render(results(test))


def test_a_metric_of_the_answers_needs_no_entry_among_the_metrics():
    agreement = verdict("token_agreement", "regressed", -0.29, baseline=1.0, current=0.71, interval=None, noise=None)
    text = words(render(results(record("t", agreement))))
    assert "t regressed token_agreement 100.0% → 71.0% -29.0 %" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_text(name):
    test = record(f"f.py::{name}", verdict("tpot", "inconclusive", advice=name, saved_at=name), worst="inconclusive")
    page = render(results(test, gate=GATE, command=name, id=name))
    tags = re.findall(r"<[a-z][^>]*", re.sub(r"(<(script|style)\b[^>]*>).*?</\2>", r"\1", page, flags=re.DOTALL))
    assert not [tag for tag in tags if re.match(r"<(img|a href=.http)|.* on[a-z]+=", tag)]
    assert {tag for tag in tags if tag.startswith("<script")} <= OUR_SCRIPTS


def drawn(low, high, **fields):
    record = VerdictRecord.model_validate(verdict(interval=[low, high], **fields))
    return strip(MetricValue.model_validate(metric("tpot", 0.00402, 0.00401)), record)


def ends(svg):
    """Of the interval's bar and of the tolerance's band, in pixels; and how many arrows there are."""
    bar = re.search(r'class="interval" d="M(\d+) \d+H(\d+)([^"]*)"', svg)
    band = re.search(r'class="band" d="M(\d+) 2H(\d+)V', svg)
    return (int(bar[1]), int(bar[2])), (int(band[1]), int(band[2])), bar[3].count("L") // 2


def test_the_interval_lies_beside_the_band_as_the_verdict_says():
    (low, high), (_, limit), arrows = ends(drawn(0.061, 0.084))
    assert limit < low < high
    assert arrows == 0
    (_, high), (_, limit), _ = ends(drawn(-0.01, 0.03))
    assert high < limit
    (low, high), (_, limit), _ = ends(drawn(0.03, 0.07))
    assert low < limit < high


def test_an_interval_of_any_width_stays_on_the_axis_and_ends_in_arrows():
    (low, high), (left, right), arrows = ends(drawn(-1.0, 1e300))
    assert 0 < low < left < right < high < 240
    assert right - left > 40
    assert arrows == 2


def test_a_bound_without_sense_to_a_reader_is_cut_off():
    page = words(render(results(record("t", verdict(interval=[-0.9, 1e300])))))
    assert "-90.0 to over +1,000,000 %" in page
    assert "change -30.0 to +1,200 %" in strip(
        MetricValue.model_validate(metric("tpot", 0.004)), VerdictRecord.model_validate(verdict(interval=[-0.3, 12]))
    )


def test_the_first_screen_says_why_tests_could_not_be_judged():
    broken = [
        record(f"a.py::test_{n}", worst="invalid", invalid=f"The engine died after {n} s.", outcome="failed")
        for n in (3, 4, 5)
    ]
    text = words(render(results(*broken, UNSTORED, PASSED)))
    first = text[: text.index("Every test")]
    assert "invalid test_3 and 2 more tests: The engine died after 3 s." in first
    assert "no-baseline test_new : none is stored in b/x.json" in first
    assert "The engine died" not in words(render(results(PASSED)))


def test_why_a_metric_is_missing_is_said_once():
    why = "the link is not simulated"
    test = record(
        "t", verdict("tpot", "not-applicable", None, reason=why), metrics={"tpot": metric("tpot", reason=why)}
    )
    assert words(render(results(test))).count(why) == 1
    other = record("t", verdict("tpot", "no-baseline", None, reason="none is stored"), outcome="failed")
    assert "tpot: none is stored" in words(render(results(other)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("one\n{{ nothing.here }}", "mine.j2, line 2: 'nothing' is undefined."),
        ("\n\n{{ 1 + 'a' }}", "mine.j2, line 3: TypeError: unsupported operand"),
        ("{% if %}", "mine.j2, line 1: Expected an expression, got 'end of statement block'."),
        ("\n{% include 'none.j2' %}", "mine.j2, line 2 asks for none.j2: there is none."),
        ("{% include 'other.j2' %}", "other.j2, line 2: 'nowhere' is undefined."),
        ("{% include 'broken.j2' %}", "broken.j2, line 3: "),
    ],
)
def test_a_wrong_template_is_named_with_its_line(tmp_path, text, said):
    (tmp_path / "mine.j2").write_text(text)
    (tmp_path / "other.j2").write_text("\n{{ nowhere }}")
    (tmp_path / "broken.j2").write_text("\n\n{% for %}")
    with pytest.raises(ResultsError) as error:
        render(results(PASSED), tmp_path / "mine.j2")
    assert str(error.value).startswith(f"The report template {tmp_path}/{said}")


def test_a_template_that_is_not_text_is_named(tmp_path):
    (tmp_path / "mine.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(ResultsError, match=r"mine\.j2.*line 1: not UTF-8"):
        render(results(PASSED), tmp_path / "mine.j2")
