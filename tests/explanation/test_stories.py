"""What is told of regressions whose stories are known: records made by hand."""

import re

import pytest

from pytest_llmperf.conditions import CONDITIONS
from pytest_llmperf.explanation import explain
from pytest_llmperf.explanation.rules import CONSEQUENCES, ESSENTIAL, GROUPS, OF_SERVERS, PARTS, RULES

from .records import AT_REST, conditions, document, record, verdict

SLOWER = {"tpot": 1.07}
DECODE = {"decode_time": 1.200 * 1.07}


def told(*args, **more):
    return explain(record(*args, **more)).sentences


def test_a_lower_clock_is_the_first_thing_beside_a_slower_decode():
    sentences = told(SLOWER, {**DECODE, "sm_clock": 1.822e9})
    assert sentences[0] == (
        "Decode is 7.0 % slower (from 1.200 s to 1.284 s a request); with it the SM clock was 8.0 % lower "
        "(1.822 GHz, 1.980 GHz in the baseline), held back by neither the power cap nor heat."
    )
    assert sentences[-1] == (
        "As in the baseline: throttling, temperature, power, number of requests running, client, engine and arguments."
    )


def test_of_what_was_measured_without_a_workload_no_condition_of_a_load_is_missed():
    more = {"workload": None, "conditions": {}}
    assert told({"bare_power": 1.2}, **more) == (
        "bare_power went from 79.00 W to 94.80 W.",
        "As in the baseline: engine and arguments.",
    )


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("power_cap_share", "held back by the power cap for 62% of the time (0% in the baseline)"),
        ("thermal_share", "held back by heat for 62% of the time (0% in the baseline)"),
        ("other_throttle_share", "held back by another limit for 62% of the time (0% in the baseline)"),
    ],
)
def test_what_held_the_clock_back_stands_with_the_clock(cause, words):
    first, *others = told(SLOWER, {**DECODE, "sm_clock": 1.822e9, cause: 0.62, "temperature": 83.0})
    assert first.endswith(f"1.980 GHz in the baseline), {words}.")
    assert others[0] == "Also with it: temperature higher (83 °C, 55 °C in the baseline)."


def test_a_cap_that_took_nothing_from_the_clock_does_not_lead():
    first, *others = told(SLOWER, {**DECODE, "power_cap_share": 0.3}, provenance={"treatment": {"flag": 1}})
    assert first.endswith("; under test: flag=1 (not given in the baseline).")
    assert others[0].startswith("Also with it: share of the time under the power cap higher (30.0%, 0.0% in the")


def test_a_cap_without_a_readable_clock_is_told_all_the_same():
    first, *_, last = told(SLOWER, {**DECODE, "sm_clock": None, "power_cap_share": 0.3})
    assert "; with it the clock was held back by the power cap for 30% of the time (0% in the baseline)" in first
    assert last == "Unknown: SM clock (NVML does not tell it)."


def test_a_queue_of_an_open_loop():
    sentences = told({"ttft": 5.0}, {"queue_time": 0.180, "batch_occupancy": 24.0})
    assert sentences[0] == (
        "Queueing takes 179.0 ms longer (from 1.000 ms to 180.0 ms a request); with it the number of requests running "
        "was 50.0 % higher (24, 16 in the baseline)."
    )


def test_a_client_that_sends_late_is_no_engine_that_is_slow():
    found = explain(record({"ttft": 1.3}, {"send_delay": 12e-3}))
    assert [part.name for part in found.parts] == ["send_delay"]
    assert found.sentences[0].startswith("Sending takes 11.98 ms longer (from 20.00 µs to 12.00 ms a request)")
    assert "client" not in found.sentences[-1]


def test_tokens_that_reach_the_client_late_are_not_the_engines_decode():
    found = explain(record(SLOWER, {"client_overhead": 5e-3}))
    assert found.parts == ()
    assert found.sentences[:2] == (
        "Decode is 7.0 % slower (TPOT from 4.700 ms to 5.029 ms) as the client saw it, and as in the baseline by the "
        "engine's own account.",
        "Also with it: client's overhead higher (5.000 ms, 50.00 µs in the baseline).",
    )


@pytest.mark.parametrize(
    ("name", "now", "words"),
    [
        ("send_delay", 300e-6, "delay of sending"),
        ("client_overhead", 300e-6, "client's overhead"),
        ("repeat_spread", 0.08, "spread between repeats"),
    ],
)
def test_small_parts_and_repeats_that_differ_more_do_not_lead(name, now, words):
    first, second, *_ = told({"e2e_latency": 1.07}, {**DECODE, name: now})
    assert first == "Decode is 7.0 % slower (from 1.200 s to 1.284 s a request)."
    assert second.startswith(f"Also with it: {words} higher")
    clocked = told({"e2e_latency": 1.07}, {**DECODE, name: now, "memory_clock": 2.6e9})
    assert "; with it the memory clock was 18.8 % lower" in clocked[0]


def test_a_prefill_alone():
    first = told({"ttft": 1.2}, {"prefill_time": 0.048})[0]
    assert first.startswith("Prefill is 20.0 % slower (from 40.00 ms to 48.00 ms a request)")


def test_parts_are_ordered_by_their_share_and_small_ones_left_out():
    found = explain(record({"e2e_latency": 1.2}, {"decode_time": 1.260, "prefill_time": 0.22, "queue_time": 1.2e-3}))
    assert [(part.name, round(part.share, 2)) for part in found.parts] == [
        ("prefill_time", 0.75),
        ("decode_time", 0.25),
    ]
    assert "75% of what was added to a request" in found.sentences[0]
    assert found.sentences[1] == "Of the rest, 25% in decode (from 1.200 s to 1.260 s)."


def test_decode_comes_first_when_its_own_metric_moved():
    moved = {"decode_time": 1.260, "prefill_time": 0.22}
    assert explain(record({"tpot": 1.05, "ttft": 5.5}, moved)).parts[0].name == "decode_time"


def test_a_metric_of_the_first_token_is_not_explained_by_decode():
    found = explain(record({"ttft": 1.2}, {"decode_time": 2.0, "prefill_time": 0.048}))
    assert [part.name for part in found.parts] == ["prefill_time"]


def test_smaller_batches():
    first = told(SLOWER, {**DECODE, "batch_occupancy": 8.0})[0]
    assert first.endswith("with it the number of requests running was 50.0 % lower (8, 16 in the baseline).")


def test_requests_that_pile_up_where_each_takes_longer_do_not_lead():
    sentences = told(SLOWER, {**DECODE, "batch_occupancy": 24.0}, workload={"rate": 30.0, "digest": "d"})
    assert "running" not in sentences[0]
    assert sentences[1] == "Also with it: number of requests running 50.0 % higher (24, 16 in the baseline)."


def test_another_board_comes_last_and_is_told_by_the_first_group_of_its_uuid():
    boards = [
        {"uuid": "GPU-30c9f437-070c-2f84-e111-7a3c6a6c8d47"},
        {"uuid": "GPU-00000000-1111-2f84-e111-7a3c6a6c8d47"},
    ]
    first = told(SLOWER, DECODE, provenance={"treatment": {"enforce_eager": True}, "boards": boards})[0]
    assert first.endswith(
        "; under test: enforce_eager=true (not given in the baseline); board GPU-00000000, GPU-30c9f437 (GPU-1 in the "
        "baseline)."
    )


def test_boards_that_begin_alike_are_told_whole():
    now, before = ({"boards": [{"uuid": f"GPU-sim-h200-{n}"}]} for n in (0, 1))
    first = told(SLOWER, DECODE, provenance=now, baseline_provenance=before)[0]
    assert first.endswith("; under test: board GPU-sim-h200-0 (GPU-sim-h200-1 in the baseline).")


def test_flags_under_test():
    now = {"engine_version": "0.12.0", "treatment": {"enforce_eager": True}, "driver": "580.2"}
    first = told(SLOWER, DECODE, provenance=now)[0]
    assert first.endswith(
        "; under test: enforce_eager=true (not given in the baseline); engine version 0.12.0 (0.11.0 in the baseline); "
        "driver 580.2 (570.1 in the baseline)."
    )


def test_what_one_side_did_not_record_is_no_difference():
    before = {key: value for key, value in document({})["provenance"].items() if key not in ("driver", "boards")}
    found = explain(record(SLOWER, DECODE, baseline_provenance=before))
    assert found.under_test == ()


def test_nothing_moved():
    sentences = told(SLOWER, DECODE)
    assert sentences[0] == "Decode is 7.0 % slower (from 1.200 s to 1.284 s a request)."
    assert sentences[1] == "Of what was recorded, nothing else moved with it."
    assert sentences[2].startswith("As in the baseline: clocks, throttling, temperature, ")


def test_what_follows_from_the_time_does_not_lead():
    first, second, *_ = told(SLOWER, {**DECODE, "dram_utilization": 0.5})
    assert "DRAM" not in first
    assert second == "Also with it: DRAM utilisation lower (50.0%, 60.0% in the baseline)."


def test_what_speaks_against_it_is_told_apart():
    sentences = told(SLOWER, {**DECODE, "sm_clock": 2.1e9})
    assert "SM clock" not in sentences[0]
    assert "Different as well: SM clock 6.1 % higher (2.100 GHz, 1.980 GHz in the baseline)." in sentences


def test_an_improvement_is_told_the_other_way_round():
    first = told({"tpot": 0.9}, {"decode_time": 1.08, "sm_clock": 2.1e9}, kind="improved")[0]
    assert first.startswith(
        "Decode is 10.0 % faster (from 1.200 s to 1.080 s a request); with it the SM clock was 6.1 % higher"
    )


def test_an_inconclusive_change_is_explained_in_the_direction_in_which_it_points():
    assert told({"tpot": 0.97}, {"decode_time": 1.164}, kind="inconclusive")[0].startswith("Decode is 3.0 % faster")
    assert told({"mbu": 0.97}, {"decode_time": 1.237}, kind="inconclusive")[0].startswith("Decode is 3.1 % slower")


@pytest.mark.parametrize("kind", ["pass", "incomparable", "no-baseline", "not-applicable"])
def test_other_verdicts_ask_for_no_explanation(kind):
    assert told(SLOWER, {**DECODE, "sm_clock": 1e9}, kind=kind) == ()


def test_what_cannot_be_trusted_is_not_explained():
    assert told(SLOWER, DECODE, invalid="the clock was not held") == ()


def test_energy_is_power_times_time():
    found = explain(record({"tpj": 1 / 1.10}, {"power": 500 * 1.1**0.25}))
    assert found.energy.by_power == pytest.approx(0.25)
    assert found.energy.time == pytest.approx(1.1**0.75)
    assert found.sentences[0] == (
        "Energy a token is 10.0 % higher: time 7.4 % longer (75% of it) and power 2.4 % higher (25% of it)."
    )


def test_energy_whose_power_fell_has_no_shares():
    found = explain(record({"tpj": 1 / 1.05}, {"power": 450.0}))
    assert found.energy.by_power is None
    assert found.sentences[0].startswith("Energy a token is 5.0 % higher: power 10.0 % lower, time 16.7 % longer")


def test_energy_by_power_names_the_clock_that_was_higher():
    first = told({"tpj": 1 / 1.2}, {"power": 600.0, "sm_clock": 2.1e9})[0]
    assert first.startswith("Energy a token is 20.0 % higher: power 20.0 % higher, time as in the baseline")
    assert "; with it the SM clock was 6.1 % higher" in first


def test_the_power_and_temperature_of_another_board_are_not_compared():
    found = explain(
        record({"tpj": 1 / 1.2}, {"power": 600.0, "temperature": 80.0}, provenance={"boards": [{"uuid": "GPU-2"}]})
    )
    assert found.energy is None
    assert not {m.name for m in found.moved} & {"power", "temperature"}
    assert "board GPU-2 (GPU-1 in the baseline)" in " ".join(found.sentences)


def test_another_way_to_the_engine_is_not_like_with_like():
    found = explain(record(SLOWER, DECODE, baseline_provenance={"engine": "serve", "treatment": {}}))
    assert found.parts == ()
    assert "measured in process, in the baseline over HTTP: not like with like" in " ".join(found.sentences)


def test_a_search_compares_no_latencies_at_different_rates():
    search = {"low": 1, "high": 9, "attainment": 0.9, "precision": 0.05, "seconds": 5, "trials": []}
    found = explain(record({"max_rate": 0.8}, {"decode_time": 2.0, "sm_clock": 1.5e9}, search=search))
    assert found.parts == ()
    assert found.sentences[0].startswith("max_rate went from 10.000 1/s to 8.000 1/s; with it the SM clock was 24.2 %")


def test_a_record_without_conditions_says_so():
    sentences = told(SLOWER, conditions={}, provenance=None, baseline_provenance=None)
    assert sentences[0] == "Decode is 7.0 % slower (TPOT from 4.700 ms to 5.029 ms)."
    assert "SM clock, share of the time under the power cap" in sentences[-1]
    assert "engine and arguments (the baseline's provenance is not recorded)" in sentences[-1]


def test_a_baseline_without_conditions_says_so():
    sentences = told(SLOWER, DECODE, before=dict.fromkeys(AT_REST))
    assert sentences[0] == "Decode is 7.0 % slower (TPOT from 4.700 ms to 5.029 ms)."
    assert "temperature and power (the baseline does not hold it)" in sentences[-1]


def test_no_sentence_speaks_of_causes():
    everything = {**DECODE, "sm_clock": 1.8e9, "power_cap_share": 0.5, "temperature": 80.0, "preemptions": 3.0,
                  "dram_utilization": 0.4, "send_delay": 1e-3, "batch_occupancy": 8.0}  # fmt: skip
    text = " ".join(told(SLOWER, everything, provenance={"treatment": {"a": 1}}))
    assert not re.search(r"because|due to|caused|therefore|reason", text)


@pytest.mark.parametrize("name", RULES)
def test_less_than_its_threshold_is_no_movement_and_more_is(name):
    rule, rest = RULES[name], AT_REST.get(name, ("1", 0.0))[1]
    step = rule.least * rest if rule.relative else rule.least
    # The baseline's own launches lie 0.3 % apart.
    wide = max(step, 0.003 * rest)

    def moved(by):
        record_ = record(SLOWER, {**DECODE, name: rest + by}, before={name: rest})
        return name in {m.name for m in explain(record_).moved}

    assert not moved(0.9 * wide)
    assert moved(1.1 * wide)


def test_less_than_the_baselines_own_spread_is_no_movement():
    wide = conditions({"sm_clock": 1.9e9})
    wide["sm_clock"]["baseline_launches"] = [1.88e9, 1.98e9, 1.98e9]
    found = explain(record(SLOWER, DECODE, conditions=wide))
    assert "sm_clock" in found.still


def test_the_rules_speak_of_conditions_that_exist():
    named = {*RULES, *PARTS, *CONSEQUENCES, *ESSENTIAL, *OF_SERVERS, *(n for names in GROUPS.values() for n in names)}
    assert named == CONDITIONS.keys()
    assert {name: CONDITIONS[name].unit for name in AT_REST} == {name: unit for name, (unit, _) in AT_REST.items()}


def test_two_metrics_that_went_opposite_ways_are_explained_by_the_worse():
    verdicts = [verdict("ttft", 0.5, "improved"), verdict("tpot", 1.07)]
    found = explain(record({"ttft": 0.5, "tpot": 1.07}, DECODE, verdicts=verdicts))
    assert (found.verdict, found.metrics) == ("regressed", ("tpot",))


def test_an_anchor_has_no_conditions_to_compare_with():
    verdicts = [verdict("tpot", 1.04), verdict("tpot", 1.07, against="anchor")]
    found = explain(record({"tpot": 1.07}, {**DECODE, "sm_clock": 1e9}, verdicts=verdicts))
    assert found.sentences == ("It has become worse since the anchor: beside the anchor no conditions are kept.",)
    verdicts[1] = verdicts[1] | {"saved_at": "2026-01-02T03:04:05+00:00"}
    (sentence,) = explain(record({"tpot": 1.07}, DECODE, verdicts=verdicts)).sentences
    assert sentence.startswith("It has become worse since the anchor of 2026-01-02: ")
    assert found.parts == ()
