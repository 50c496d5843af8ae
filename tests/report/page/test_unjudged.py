from pytest_llmperf.report.page.unjudged import unjudged

from ..records import PASSED, REGRESSED, record, results, verdict


def told(*records):
    return [(one.verdict, one.test.nodeid, one.text, one.others) for one in unjudged(results(*records).tests)]


def test_reasons_are_told_once_with_the_first_test_and_how_many_share_them():
    invalid = [record(f"a[{n}]", worst="invalid", invalid=f"{n} of 9 requests failed.") for n in (1, 2)]
    other = record("b", worst="invalid", invalid="The clock was not held.")
    absent = [record(f"c[{n}]", verdict("tpot", "no-baseline", None, reason=f"none is stored in b/{n}/{'x' * n}.json"))
              for n in (3, 40)]  # fmt: skip
    assert told(PASSED, *absent, *invalid, other, REGRESSED) == [
        ("invalid", "a[1]", "1 of 9 requests failed.", 1),
        ("invalid", "b", "The clock was not held.", 0),
        ("no-baseline", "c[3]", "none is stored in b/3/xxx.json", 1),
    ]


def test_where_all_were_judged_there_is_nothing_to_say():
    assert told(PASSED, REGRESSED) == []


def test_a_reason_that_was_not_kept_is_said_to_be_missing():
    assert told(record("a", verdict("tpot", "incomparable", None))) == [("incomparable", "a", "no reason was kept", 0)]
