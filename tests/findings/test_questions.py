"""Each question on records whose answer is known."""

import pytest

from pytest_llmperf.findings import find
from tests.findings.records import case, column, energy, results, roof, said, step

PHASES = [{"windows": [], "regression": None, "reason": "r"}]


def asked(kind, *tests, **environment):
    return [finding for finding in find(results(*tests, **environment)) if finding.kind == kind]


# -- phases


def test_phases_of_a_test_that_took_them_apart():
    [finding] = asked(
        "phases",
        case("t[16]", batch=16, record={"phases": PHASES},
             values={"prefill_jpt": 0.07, "decode_jpt": 3.5, "jpt": 3.6, "e2e_latency": 4.0, "ttft": 1.0}),
    )  # fmt: skip
    assert finding.sentences[0] == (
        "A decoded token takes 50.0 times the energy of a prefilled one (3.500 J/token against 0.07000 J/token; "
        "512 + 256 tokens, batch 16)."
    )
    assert "Of 4.000 s end to end, 1.000 s (25 %) pass until the first token." in finding.sentences
    assert column(finding, "phase") == ["prefill", "decode", "end to end"]
    assert column(finding, "jpt") == [0.07, 3.5, 3.6]
    assert column(finding, "power") == [None, None, None]


def test_the_test_that_took_the_phases_apart_is_among_those_of_the_finding():
    parts = [
        case("t.py::p", output_len=1, values={"prefill_jpt": 0.1}),
        case("t.py::d", input_len=1, values={"decode_jpt": 0.4}),
        case("t.py::e", values={"jpt": 0.5}),
    ]
    own = case("t.py::o", record={"phases": PHASES}, values={"prefill_jpt": 0.1, "decode_jpt": 0.8, "jpt": 1.0})
    [finding] = asked("phases", *parts, own)
    assert "8.0 times" in finding.sentences[0]
    assert sorted(finding.tests) == ["t.py::d", "t.py::e", "t.py::o", "t.py::p"]
    assert column(finding, "jpt") == [0.1, 0.8, 0.5]


def test_of_phases_that_were_measured_twice_those_of_one_file_are_told():
    """As seen on an H200: a prefill of another file took longer than the first token of the whole."""

    def measured(file, first):
        return [
            case(f"{file}::p", output_len=1, values={"prefill_jpt": 0.1, "e2e_latency": first}),
            case(f"{file}::d", input_len=1, values={"decode_jpt": 0.4, "e2e_latency": 1.0}),
            case(f"{file}::e", values={"jpt": 0.5, "e2e_latency": 1.0 + first, "ttft": first}),
        ]  # fmt: skip

    phases, lengths = measured("t.py", 0.02), measured("a.py", 0.03)
    several = case("a.py::x", output_len=1, values={"prefill_jpt": (0.1, 0.1), "e2e_latency": (0.04, 0.04)})
    [finding] = asked("phases", *phases, lengths[0], lengths[2], several)
    assert finding.tests == ["t.py::d", "t.py::p", "t.py::e"]
    assert column(finding, "e2e_latency") == [0.02, 1.0, 1.02]
    # Where no file has two of them, that of most launches counts.
    several["nodeid"] = "y.py::x"
    [finding] = asked("phases", phases[0], several, case("z.py::d", input_len=1, values={"decode_jpt": 0.4}))
    assert finding.tests == ["z.py::d", "y.py::x"]


def apart(batch=16, clock=None, **more):
    where = {"batch": batch, "clock": clock, **more}
    return [
        case(f"p[{batch}-{clock}]", output_len=1, values={"prefill_jpt": 0.1, "power": 280.0}, **where),
        case(f"d[{batch}-{clock}]", input_len=1, values={"decode_jpt": 0.4, "power": 180.0}, **where),
    ]


def test_phases_of_tests_of_one_phase_each():
    whole = case("e", batch=16, values={"jpt": 0.5, "power": 200.0})
    [finding] = asked("phases", *apart(), whole)
    assert "4.0 times" in finding.sentences[0]
    assert "Prefill draws 280.0 W, decode 180.0 W." in finding.sentences
    assert column(finding, "power") == [280.0, 180.0, 200.0]
    assert finding.tests == ["d[16-None]", "p[16-None]", "e"]
    [finding] = asked("phases", *apart())
    assert column(finding, "phase") == ["prefill", "decode"]


def test_of_many_batches_a_few_stand_for_all():
    found = asked("phases", *(test for batch in (1, 2, 4, 8, 16, 32) for test in apart(batch)))
    assert [one.name for one in found] == ["batch-1-512-256", "batch-8-512-256", "batch-32-512-256"]


def test_of_many_lengths_those_that_took_the_phases_apart_or_the_usual_ones_are_told():
    lengths = [(prompt, output) for prompt in (128, 512) for output in (64, 256)]
    parts = [case(f"p{i}", batch=4, input_len=i, output_len=1, values={"prefill_jpt": 0.1}) for i in (128, 512)]
    parts += [case(f"d{o}", batch=4, input_len=1, output_len=o, values={"decode_jpt": 0.4}) for o in (64, 256)]
    wholes = [case(f"e{i}-{o}", batch=4, input_len=i, output_len=o, values={"jpt": 1.0}) for i, o in lengths]
    elsewhere = case("x", batch=9, input_len=512, output_len=64, values={"jpt": 1.0})
    [finding] = asked("phases", *parts, *wholes, elsewhere)
    assert finding.name == "batch-4-512-64"
    own = case("own", batch=4, input_len=128, output_len=256, record={"phases": PHASES},
               values={"prefill_jpt": 0.1, "decode_jpt": 0.8})  # fmt: skip
    [finding] = asked("phases", *parts, *wholes, elsewhere, own)
    assert finding.name == "batch-4-128-256"
    assert "8.0 times" in finding.sentences[0]


def test_phases_of_a_sweep_over_the_clock_are_told_at_its_highest_and_its_best():
    wholes = [
        case(f"w{clock}", batch=16, clock=clock, values={"tpj": tpj}) for clock, tpj in ((750.0, 3.0), (900.0, 2.0))
    ]
    found = asked("phases", *apart(clock=750.0), *apart(clock=900.0), *wholes)
    assert [one.name for one in found] == ["batch-16-900-mhz-512-256", "batch-16-750-mhz-512-256"]
    assert "750 MHz" in found[1].title
    # Without another clock that was locked there is no best of them.
    [finding] = asked("phases", *apart(clock=900.0), *apart())
    assert "MHz" not in finding.title
    assert len(asked("phases", *apart(1), *apart(16))) == 2
    assert asked("phases", *apart(1)[:1], *apart(16)[1:]) == []


# -- batch and clock


def grid(power, batches=(1, 4, 16, 64), clocks=(750, 900, 1300)):
    return [
        case(f"g[{batch}-{clock}]", batch=batch, clock=float(clock),
             values={"power": power(batch, clock), "throughput": batch * clock / 10,
                     "tpj": batch * clock / 10 / power(batch, clock), "e2e_latency": batch / clock})
        for batch in batches
        for clock in clocks
    ]  # fmt: skip


def test_batch_and_clock_has_a_row_a_place():
    [finding] = asked("batch_and_clock", *grid(lambda batch, clock: clock**2 / 1e4 + batch / 10))
    assert len(finding.rows) == 12
    assert finding.sentences[0].startswith("Most tokens per joule with batch 64 at 750 MHz (512 + 256 tokens): ")
    assert (
        "From 750 to 1300 MHz (+73.3 %) at batch 64: power +180.0 %, more than linearly; throughput +73.3 %."
        in finding.sentences
    )
    assert "At every batch 750 MHz is the clock of most tokens per joule." in finding.sentences
    assert "From batch 1 to 16 power changes by +0.9 % (169.1 W to 170.6 W, 1300 MHz) for 16.0 times" in said(finding)


def test_power_that_follows_the_clock_slowly_is_less_than_linear():
    [finding] = asked("batch_and_clock", *grid(lambda batch, clock: 100 + clock / 100))
    assert "less than linearly" in said(finding)


def test_batches_at_clocks_of_their_own_are_no_grid():
    tests = [case(f"t{b}", batch=b, clock=c, values={"power": 1.0}) for b, c in ((1, 750.0), (4, 900.0), (4, 950.0))]
    assert asked("batch_and_clock", *tests) == []


def test_a_grid_without_values_says_so():
    tests = [case(f"t{b}{c}", batch=b, clock=c, values={"ttft": 1.0}) for b in (1, 4) for c in (750.0, 900.0)]
    [finding] = asked("batch_and_clock", *tests)
    assert finding.sentences == ["Neither power nor speed was measured at two of these places."]


# -- idle

LADDER = {
    "bare_w": 46.0, "loaded_w": 76.0, "held_w": {"900": 80.0},
    "boards_w": {"GPU-a": {"bare": 23.0, "loaded": 23.0}, "GPU-b": {"bare": 23.0, "loaded": 53.0, "held 900": 55.0}},
    "reasons": {"context": "no CUDA"},
}  # fmt: skip


def test_idle_is_told_of_the_board_that_holds_the_model():
    measured = case("t", values={"power": 200.0}, record={"energy": [energy(200.0, 53.0)]})
    [finding] = asked("idle", measured, sensor={"idle": LADDER})
    assert finding.sentences[0] == "An idle board draws 23.00 W without an engine and 53.00 W with the model loaded."
    assert "is 26 % of the power of this run's tests" in said(finding)
    assert "With the model loaded and held at 900 MHz it draws 55.00 W." in finding.sentences
    assert "Not known with a CUDA context: no CUDA." in finding.sentences
    assert column(finding, "power") == [23.0, 53.0, 55.0]
    assert finding.tests == ["t"]


@pytest.mark.parametrize(
    "sensor",
    [None, {}, {"idle": None}, {"idle": "x"}, {"idle": {"boards_w": 3, "held_w": []}}, {"idle": {"bare_w": None}}],
)
def test_idle_of_an_odd_sensor_is_nothing(sensor):
    assert asked("idle", case("t", values={"power": 1.0}), sensor=sensor) == []


def test_idle_without_boards_is_their_sum():
    [finding] = asked("idle", sensor={"idle": {"bare_w": 46.0, "loaded_w": 76.0, "held_w": {}}})
    assert column(finding, "power") == [46.0, 76.0]


def test_tests_of_the_floor_at_several_clocks_are_one_finding():
    floors = [
        case(f"i[{clock}]", clock=clock, record={"workload": None, "engine": None},
             values={"bare_power": 23.0, "loaded_power": 53.0, "locked_power": watts})
        for clock, watts in ((900.0, 54.0), (750.0, 53.0), (None, None))
    ]  # fmt: skip
    [finding] = asked("idle", *floors)
    assert column(finding, "rung")[-2:] == [
        "model loaded, 750 MHz", "model loaded, 900 MHz",
    ]  # fmt: skip
    told = "With the model loaded and held at 2 clocks from 750 to 900 MHz it draws 53.00 W to 54.00 W."
    assert told in finding.sentences
    assert column(finding, "clock")[-3:] == [None, 750, 900]
    assert "Not known" not in said(finding)
    assert sorted(finding.tests) == ["i[750.0]", "i[900.0]", "i[None]"]


def test_a_test_of_the_floor_goes_before_the_ladder():
    gauge = case("i.py::test_floor", record={"workload": None, "engine": None},
                 values={"bare_power": 23.0, "context_power": None, "loaded_power": 53.0})  # fmt: skip
    [finding] = asked("idle", gauge, sensor={"idle": LADDER})
    assert finding.tests == ["i.py::test_floor"]
    assert "Not known with a CUDA context: not measured." in finding.sentences


def test_the_floor_of_several_boards_is_told_as_theirs_together():
    gauge = case("i.py::test_floor", record={"workload": None}, engine={"tensor_parallel_size": 2},
                 values={"bare_power": 158.0, "loaded_power": 242.0})  # fmt: skip
    [finding] = asked("idle", gauge)
    assert finding.sentences[0].startswith("The 2 idle boards together draw 158.0 W without an engine")
    [finding] = asked("idle", case("i.py::test_floor", record={"workload": None}, values={"bare_power": 79.0}))
    assert (finding.title, finding.sentences[0]) == (
        "What an idle board draws", "An idle board draws 79.00 W without an engine.",
    )  # fmt: skip


# -- latency and throughput

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def loads(tpot, sizes=BATCHES, kind="batch", **more):
    return [
        case(f"l[{size}]", **{kind: size}, **more,
             values={"tpot": tpot(size), "throughput": size / tpot(size), "e2e_latency": 256 * tpot(size)})
        for size in sizes
    ]  # fmt: skip


def test_a_sharp_corner_is_measured_where_it_is_and_held_against_the_prediction():
    tests = loads(lambda batch: max(0.02, 0.02 / 100 * batch), record={"roof": roof()})
    [finding] = asked("latency_throughput", *tests)
    marks = {mark.name: mark for mark in finding.marks}
    assert marks["measured"].x == pytest.approx(100)
    assert marks["predicted"].x == pytest.approx(125e12 / 722e9)
    assert marks["measured"].y == pytest.approx(0.02)
    assert (
        "Measured, decode turns at batch 100: from there what its sequences add to a step takes longer than what any "
        "step takes; predicted is batch 173 (machine balance: 125.0 TFLOP/s over 722.0 GB/s as a copy reached it; 139 "
        "with the data sheet's 900.0 GB/s)." in finding.sentences
    )
    assert "Any step takes 20.00 ms, each sequence adds 200.0 µs" in said(finding)
    assert marks["knee"].x == 128
    assert "The knee is at batch 128" in finding.sentences[0]
    assert "batch 256 brings 0.0 % throughput" in finding.sentences[0]


def condition(value, unit):
    return {
        "unit": unit,
        "launches": [value],
        "value": value,
        "baseline": None,
        "baseline_launches": [],
        "reason": None,
    }


@pytest.mark.parametrize("capped", [True, False])
def test_a_turn_under_the_power_cap_says_so(capped):
    tests = loads(lambda batch: max(0.02, 0.02 / 100 * batch), record={"roof": roof()})
    for test in tests:
        low = test["workload"]["batch"] >= 128 and capped
        test["conditions"] = {
            "sm_clock": condition(
                1.755e9 if test["workload"]["batch"] == 256 and low else 1.875e9 if low else 1.98e9, "Hz"
            ),
            "power_cap_share": condition(1.0 if low else 0.0, "1"),
        }
    [finding] = asked("latency_throughput", *tests)
    told = (
        "From batch 128 on the power cap held the clock down, to 1,755 MHz at batch 256 from 1,980 MHz: FLOPs took "
        "longer, and the turn came earlier than at a clock that is held."
    )
    assert (told in finding.sentences) is capped


def test_the_parts_of_a_step_are_told_at_the_rates_that_the_board_reached():
    decode = {
        "phase": "decode",
        "batch": 256.0,
        "flops": 1e12,
        "weight_bytes": 14e9,
        "kv_bytes": 2.56e9,
        "seconds": 0.05,
    }
    record = {"roof": roof(
        total_params=7_000_000_000, weight_bytes=14e9, copy_bandwidth=1e12, matmul_flops=1e14, points=[decode]
    )}  # fmt: skip
    [finding] = asked("latency_throughput", *loads(lambda batch: max(0.02, 0.0002 * batch), record=record))
    # 14 GB at 1 TB/s; 14 GFLOP at 100 TFLOP/s; 10 MB of KV cache a sequence at 1 TB/s; what is left of 200 µs.
    assert (
        "Of 20.00 ms, 14.00 ms are the bytes of the weights at a copy's 1.000 TB/s; of 200.0 µs a sequence, 140.0 µs "
        "are its FLOPs at a matrix product's 100.0 TFLOP/s, 10.00 µs its KV cache at the bandwidth, and 50.00 µs "
        "attention, sampling and lower rates." in finding.sentences
    )
    slower = record | {"roof": roof(matmul_flops=1e13, copy_bandwidth=1e12)}
    [finding] = asked("latency_throughput", *loads(lambda batch: max(0.02, 0.0002 * batch), record=slower))
    assert "lower rates" not in said(finding)


@pytest.mark.parametrize(
    ("sizes", "more", "count"),
    [
        ((1, 2, 4, 8, 16), {}, 1),
        ((1, 4, 8, 16), {}, 0),
        ((1, 2, 4, 6, 8), {}, 0),
        ((1, 2, 4, 8, 16), {"output_len": 1}, 0),
    ],
)
def test_few_sizes_a_narrow_range_and_prefill_alone_make_no_curve(sizes, more, count):
    assert len(asked("latency_throughput", *loads(lambda size: 0.02 + size / 1e4, sizes, **more))) == count


def test_of_loads_that_differ_in_their_output_the_one_of_most_sizes_is_told():
    short, long = (loads(lambda size: 0.02 + size / 1e4, sizes, output_len=output)
                   for sizes, output in ((BATCHES, 128), (BATCHES[:6], 256)))  # fmt: skip
    [finding] = asked("latency_throughput", *short, *long)
    assert finding.name == "batch-512-128"


def test_weights_of_one_byte_halve_the_prediction():
    tests = loads(lambda batch: 0.02, record={"roof": roof(weight_bytes=7e9, copy_bandwidth=None)})
    [finding] = asked("latency_throughput", *tests)
    [predicted] = [mark.x for mark in finding.marks if mark.name == "predicted"]
    assert predicted == pytest.approx(125e12 / 900e9 / 2)


def test_a_corner_that_is_not_reached_is_said_to_be():
    [finding] = asked("latency_throughput", *loads(lambda batch: 0.02))
    assert "Measured, decode does not turn compute-bound up to batch 256." in finding.sentences
    assert not [mark for mark in finding.marks if mark.name in ("measured", "predicted")]


def test_a_load_with_long_prompts_does_not_tell_when_decode_turns_compute_bound():
    tests = loads(lambda batch: max(0.02, 0.02 / 100 * batch), record={"roof": roof()})
    for one in tests:
        one["metrics"]["ttft"] = {**one["metrics"]["tpot"], "value": one["metrics"]["e2e_latency"]["value"] * 0.2}
    [finding] = asked("latency_throughput", *tests)
    assert "cannot be told of this load: prompts take up to 20 % of its latency" in said(finding)
    assert {mark.name for mark in finding.marks} == {"knee", "predicted"}


def test_batches_beyond_what_the_engine_runs_at_once_do_not_count():
    tests = loads(lambda batch: max(0.02, 0.02 / 100 * min(batch, 128)), engine={"limits": {"max_num_seqs": 128}})
    [finding] = asked("latency_throughput", *tests)
    assert "Batch 256 is more than the engine runs at once" in said(finding)


@pytest.mark.parametrize("kind", ["concurrency", "rate"])
def test_loops_have_a_knee_and_no_corner(kind):
    [finding] = asked("latency_throughput", *loads(lambda size: max(0.02, 0.0002 * size), kind=kind))
    assert column(finding, kind) == list(BATCHES)
    assert not [mark for mark in finding.marks if mark.name == "measured"]
    assert finding.name.startswith(kind)


def test_a_straight_curve_has_no_knee():
    [finding] = asked("latency_throughput", *[
        case(f"l[{s}]", concurrency=s, values={"throughput": 10.0 * s, "e2e_latency": 1.0 * s})
        for s in (1, 2, 4, 8, 16)
    ])  # fmt: skip
    assert finding.marks == []
    assert finding.sentences == [
        "No knee up to concurrency 16 (512 + 256 tokens): concurrency 16 brings +100.0 % throughput for +100.0 % "
        "latency "
        "over concurrency 8."
    ]


def test_of_one_load_served_in_several_ways_the_plainest_is_told():
    two = loads(lambda size: 0.02, engine={"tensor_parallel_size": 2})
    eager = loads(lambda size: 0.02, engine={"args": {"enforce_eager": True}})
    [finding] = asked("latency_throughput", *two, *eager)
    assert finding.name == "batch-512-256-2-gpus"
    [finding] = asked("latency_throughput", *two, *eager, *loads(lambda size: 0.02))
    assert finding.name == "batch-512-256"
    named_first = loads(lambda size: 0.02, engine={"kv_cache_dtype": "Fp8"})
    [finding] = asked("latency_throughput", *named_first, *loads(lambda size: 0.02))
    assert finding.name == "batch-512-256"


def test_two_sizes_are_no_curve():
    assert asked("latency_throughput", *loads(lambda size: 0.02, (1, 2))) == []


def test_a_knee_does_not_depend_on_how_far_the_loads_reach():
    places = []
    for sizes in (BATCHES, (*BATCHES, 512), (*BATCHES, 512, 1024)):
        [finding] = asked("latency_throughput", *loads(lambda batch: 0.02 + 0.0002 * batch, sizes))
        places += [mark.x for mark in finding.marks if mark.name == "knee"]
    assert places == [128, 128, 128]
    # Below it there is none, and what the last step brings is told.
    [finding] = asked("latency_throughput", *loads(lambda batch: 0.02 + 0.0002 * batch, BATCHES[:6]))
    assert finding.sentences[0] == (
        "No knee up to batch 32 (512 + 256 tokens): batch 32 brings +75.8 % throughput for +13.8 % latency over "
        "batch 16."
    )
    assert not [mark for mark in finding.marks if mark.name == "knee"]


@pytest.mark.parametrize(
    ("throughput", "latency", "told"),
    [
        (lambda size: 100.0 / size, lambda size: 1.0 * size, "No knee: more than concurrency 1 does not pay"),
        (lambda size: 10.0 * size, lambda size: 2.0 / size, "No knee up to concurrency 16"),
    ],
)
def test_curves_that_fall_have_no_knee(throughput, latency, told):
    [finding] = asked("latency_throughput", *[
        case(f"l[{s}]", concurrency=s, values={"throughput": throughput(s), "e2e_latency": latency(s)})
        for s in (1, 2, 4, 8, 16)
    ])  # fmt: skip
    assert finding.sentences[0].startswith(told)
    assert finding.marks == []


@pytest.mark.parametrize(
    ("tpots", "limit", "told"),
    [
        ((0.01, 0.011, 0.02, 0.05, 0.1), 4, "Too few batches decode to see where that turns compute-bound"),
        ((0.01, 0.02, 0.04, 0.08, 0.16), None, "what sequences add outweighs what any step takes from batch 1 on"),
        ((0.01, 0.09, 0.01, 0.09, 0.4), None, "no turn fits within 10 %"),
    ],
)
def test_batches_that_show_no_corner_claim_none(tpots, limit, told):
    sizes = (1, 2, 4, 8, 16)
    engine = {} if limit is None else {"limits": {"max_num_seqs": limit}}
    tests = loads(dict(zip(sizes, tpots, strict=True)).get, sizes, engine=engine, record={"roof": roof()})
    [finding] = asked("latency_throughput", *tests)
    assert told in said(finding)
    assert "does not turn" not in said(finding)
    assert not [mark for mark in finding.marks if mark.name == "measured"]


def test_of_a_mixture_of_experts_nothing_is_predicted():
    experts = step("decode", 1e9, 3e9, 1e6, 0.01)
    [finding] = asked("latency_throughput", *loads(lambda batch: 0.02, record={"roof": roof(experts)}))
    assert "predicted" not in said(finding)
    assert not [mark for mark in finding.marks if mark.name == "predicted"]


def rates(served, offered=(1, 2, 4, 8, 16), within=None):
    return [
        case(f"r[{rate}]", rate=rate, values={
            "throughput": 100.0 * served(rate), "request_throughput": served(rate),
            "e2e_latency": 2.0 if served(rate) == rate else 2.0 * rate,
            "goodput": None if within is None else served(rate) * within(rate),
        })
        for rate in offered
    ]  # fmt: skip


def test_an_open_loop_that_keeps_up_has_no_knee():
    [finding] = asked("latency_throughput", *rates(lambda rate: rate))
    assert finding.sentences == [
        "Every rate was kept up with, up to 16 requests/s (512 + 256 tokens): 1600 tokens/s at 2.000 s. Where it "
        "saturates is not told: offer more."
    ]
    assert finding.marks == []


def test_an_open_loop_tells_the_highest_rate_that_was_kept_up_with():
    [finding] = asked("latency_throughput", *rates(lambda rate: min(rate, 4.5)))
    assert finding.sentences[0] == (
        "Up to 4 requests/s are kept up with (512 + 256 tokens): 400.0 tokens/s at 2.000 s. At 8 requests/s 4.500 a "
        "second are served."
    )
    assert [mark.x for mark in finding.marks] == [4]
    assert column(finding, "request_throughput") == [1, 2, 4, 4.5, 4.5]
    [finding] = asked("latency_throughput", *rates(lambda rate: 0.5))
    assert finding.sentences == [
        "None of the rates was kept up with, from 1 request/s on (512 + 256 tokens): 50.00 tokens/s at 2.000 s."
    ]


@pytest.mark.parametrize(
    ("within", "told"),
    [
        (lambda rate: 1.0 if rate <= 2 else 0.95 if rate == 4 else 0.1,
         "Within the limits on latency are 95 % of the requests at 4 requests/s."),
        (lambda rate: 1.0 if rate == 1 else 0.5,
         "Within the limits on latency are 100 % of the requests at 1 request/s."),
        (lambda rate: 0.2 / rate,
         "At none of these rates 90 % of the requests are within the limits on latency; most, 20 %, at 1 request/s."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("most", [4.5, 100])
def test_a_rate_that_is_kept_up_with_need_not_keep_the_limits_on_latency(within, told, most):
    [finding] = asked("latency_throughput", *rates(lambda rate: min(rate, most), within=within))
    assert finding.sentences[1] == told


def test_findings_of_the_model_of_most_tests_come_first():
    tests = [case(f"b[{o}-{n}]", engine={"model": "b", "tensor_parallel_size": n}, output_len=o, values={"tpot": 1 / n})
             for n in (1, 2) for o in (4, 8)]  # fmt: skip
    tests += [case(f"a[{n}]", engine={"model": "a", "tensor_parallel_size": n}, values={"tpot": 1 / n}) for n in (1, 2)]
    assert [one.name[-1] for one in asked("scaling", *tests)] == ["b", "b", "a"]


# -- what is left out

NOT_HELD = "that the SM clock was held at {} MHz is refuted or unproven: {} of 90 samples throttled (power cap)"


def test_clocks_that_were_not_held_are_named_with_the_cause():
    held = [case(f"c[{c}]", clock=float(c), values={"tpj": 2.0 - c / 1000, "power": 1.0}) for c in (750, 900, 1050)]
    dropped = [case(f"c[{c}]", clock=float(c), values={"tpj": 9.0}, record={"invalid": NOT_HELD.format(c, c // 100)})
               for c in (1980, 1800)]  # fmt: skip
    elsewhere = case("x", clock=1500.0, batch=64, values={"tpj": 9.0}, record={"invalid": NOT_HELD.format(1500, 3)})
    [finding] = asked("sweet_spot", *held, *dropped, elsewhere)
    assert finding.sentences[-1] == "Left out: 1800 MHz and 1980 MHz, which could not be held: power cap."
    assert column(finding, "clock") == [750, 900, 1050]
    assert not {"c[1980]", "c[1800]", "x"} & set(finding.tests)
    [finding] = asked("sweet_spot", *held)
    assert "Left out" not in said(finding)


def test_a_batch_that_failed_is_left_out_by_name_and_its_values_with_it():
    failed = case("l[512]", batch=512, values={"tpot": 9.0}, record={"invalid": "out of memory"})
    [finding] = asked("latency_throughput", *loads(lambda size: 0.02 + 0.0002 * size), failed)
    assert finding.sentences[-1] == "Left out: batch 512, invalid: out of memory."
    assert 512 not in column(finding, "batch")


# -- lengths


def lengths(latency, prompts=(128, 512, 4096), outputs=(1, 8, 256), **more):
    return [
        case(f"n[{i}-{o}]", input_len=i, output_len=o,
             values={"e2e_latency": latency(i, o), "ttft": 0.01 + 1e-4 * i, "mfu": i / 10000}, **more)
        for i in prompts
        for o in outputs
    ]  # fmt: skip


def test_the_lengths_give_the_cost_of_a_token():
    [finding] = asked("lengths", *lengths(lambda i, o: 0.01 + 1e-4 * i + 0.02 * o))
    assert finding.sentences[0] == (
        "512 more prompt tokens cost 51.20 ms, less than 8 more output tokens, 160.0 ms (batch 1; from 128 to "
        "512 prompt tokens at 1 to 256 (median of 3) of output, and from 1 to 8 output tokens at 128 to 4096 (median "
        "of 3) of prompt)."
    )
    assert "no point is further from it than 0.0 %" in said(finding)
    assert "31 % with 3000" not in said(finding)
    assert "Of the peak FLOP/s prefill reaches 1.3 % with 128 prompt tokens" in said(finding)
    assert column(finding, "prompt_share")[1] == pytest.approx((0.01 + 0.0128) / (0.01 + 0.0128 + 0.16))
    assert [value is None for value in column(finding, "mfu")][:3] == [False, True, True]


def test_a_cost_that_grows_is_told_where_it_is_measured_and_over_which_range():
    prompts = (256, 512, 1024, 2048)
    grid = lengths(lambda i, o: 0.01 + 1e-4 * i + 5e-8 * i**2 + 0.02 * o, prompts, (8, 16, 64))
    [finding] = asked("lengths", *grid)
    # 51.2 ms, and 5e-8 (1024^2 - 512^2) = 39.3 ms of attention.
    assert finding.sentences[0].startswith(
        "512 more prompt tokens cost 90.52 ms, less than 8 more output tokens, 160.0 ms"
    )
    assert "from 512 to 1024 prompt tokens at 8 to 64 (median of 3) of output, and from 8 to 16 output" in said(finding)
    assert (
        "For each 512 prompt tokens it is 70.86 ms from 256 to 512, and 129.8 ms from 1024 to 2048."
        in finding.sentences
    )
    assert "Latency =" not in said(finding) or "-" not in said(finding).partition("Latency =")[2][:12]


def test_a_single_odd_first_token_does_not_tell_what_a_prompt_costs():
    """As seen on an H200: one prompt of 512 tokens took 29 ms, all others 17, and one of 1024 took 27."""
    odd = {(512, 1): 0.029, (512, 16): 0.029}
    first = {128: 0.0095, 512: 0.0174, 1024: 0.0266}
    grid = lengths(lambda i, o: odd.get((i, o), first[i]) + 0.0045 * (o - 1), tuple(first), (1, 8, 16, 64, 256))
    [finding] = asked("lengths", *grid)
    assert finding.sentences[0].startswith("512 more prompt tokens cost 9.200 ms, less than 8 more output tokens, 36.0")


def test_a_step_that_no_other_length_has_twice_is_none():
    grid = lengths(lambda i, o: 0.01 + 1e-4 * i + 0.02 * o, (128, 640, 1152), (8, 16, 64))
    [finding] = asked("lengths", *(one for one in grid if one["nodeid"] != "n[640-16]"))
    assert "from 8 to 16 output tokens at 128 to 1152 (mean of 2) of prompt" in said(finding)


def shifted(shifts, **more):
    """A grid of 0.1 ms a prompt token and 20 ms an output token, but for what is added at some places, in ms."""
    return lengths(lambda i, o: 0.01 + 1e-4 * i + 0.02 * o + shifts.get((i, o), 0.0) / 1000, **more)


def test_a_step_whose_differences_are_noise_is_left_out_by_name():
    """As seen on an H200: from 128 to 256 tokens these were 1.9, 1.7, 1.2, -0.1, 0.1, -3.8 and -6.2 ms."""
    outputs = (1, 8, 16, 32, 64, 128, 256)
    noise = dict(zip(((256, o) for o in outputs), (1.88, 1.69, 1.20, -0.14, 0.06, -3.81, -6.19), strict=True))
    noise = {place: value - 12.8 for place, value in noise.items()}
    [finding] = asked("lengths", *shifted(noise, prompts=(128, 256, 1024, 4096), outputs=outputs))
    told = "From 128 to 256 prompt tokens latency grows by no more than its differences vary by."
    assert told in finding.sentences
    assert "it is 51.20 ms from 1024 to 4096, and 59.69 ms from 256 to 1024" in said(finding)


def test_where_the_nearest_step_is_not_told_another_is():
    slower = {(512, o): 60.0 for o in (1, 8, 256)}
    [finding] = asked("lengths", *shifted(slower, prompts=(128, 512, 1024, 4096)))
    # From 512 to 1024 it falls by 8.8 ms; from 128 to 512 it grows by 98.4.
    assert finding.sentences[0].startswith("512 more prompt tokens cost 131.2 ms")
    assert "from 128 to 512 prompt tokens" in finding.sentences[0]
    told = "From 512 to 1024 prompt tokens latency grows by no more than its differences vary by."
    assert told in finding.sentences


def test_of_two_differences_an_outlier_does_not_tell_what_a_prompt_costs():
    # Prompts add 171.2 and 51.2 ms, outputs 40 and 160.
    odd = {(1024, 8): 120.0}
    [finding] = asked("lengths", *shifted(odd, prompts=(512, 1024), outputs=(8, 16)))
    assert finding.sentences[0].startswith("The lengths of this grid do not tell")
    near = {(1024, 8): 60.0}
    [finding] = asked("lengths", *shifted(near, prompts=(512, 1024), outputs=(8, 16)))
    assert finding.sentences[0] == (
        "512 more prompt tokens cost 81.20 ms, less than 8 more output tokens, 130.0 ms (batch 1; from 512 to 1024 "
        "prompt tokens at 8 to 16 (mean of 2) of output, and from 8 to 16 output tokens at 512 to 1024 (mean of 2) of "
        "prompt)."
    )


def test_costs_that_print_alike_are_as_much():
    [finding] = asked("lengths", *lengths(lambda i, o: 0.01 + 1e-4 * i + 0.0064 * o))
    assert "cost 51.20 ms, as much as 8 more output tokens, 51.20 ms" in finding.sentences[0]


def test_a_dear_prompt_is_more():
    [finding] = asked("lengths", *lengths(lambda i, o: 0.01 + 1e-3 * i + 0.02 * o))
    assert "512.0 ms, more than 8 more output tokens" in finding.sentences[0]


def test_points_that_are_no_grid_are_left_out():
    corner = lengths(lambda i, o: 1.0, (1,), (256,)) + lengths(lambda i, o: 1.0, (512,), (1, 128, 256))
    assert asked("lengths", *corner) == []
    beside = case("x", input_len=64, output_len=8, values={"e2e_latency": 9.0})
    [finding] = asked("lengths", *lengths(lambda i, o: 0.01 + 1e-4 * i + 0.02 * o), beside)
    assert 64 not in column(finding, "input_len")


# -- scaling, size


def test_more_gpus_have_a_speedup_and_an_efficiency():
    tests = [
        case(f"s[{gpus}-{batch}]", batch=batch, engine={"tensor_parallel_size": gpus, "args": {"num_gpu_blocks": gpus}},
             values={"tpot": tpot, "tpj": tpj})
        for gpus, batch, tpot, tpj in ((1, 1, 0.02, 1.0), (2, 1, 0.0144, 0.8), (1, 16, 0.03, 4.0), (2, 16, 0.015, 4.0))
    ]  # fmt: skip
    [finding] = asked("scaling", *tests)
    assert finding.sentences == [
        "2 GPUs against 1 (512 + 256 tokens): TPOT -28.0 % at batch 1 (efficiency 69 %), energy per token +25.0 "
        "%; TPOT -50.0 % at batch 16 "
        "(efficiency 100 %), energy per token 0.0 %."
    ]
    assert column(finding, "speedup") == pytest.approx([1, 0.02 / 0.0144, 1, 2])


def test_more_gpus_may_take_longer_to_a_first_token_and_that_is_told():
    tests = [case(f"s[{n}]", engine={"tensor_parallel_size": n}, values={"tpot": tpot, "ttft": ttft})
             for n, tpot, ttft in ((1, 0.00466, 0.01755), (2, 0.0034, 0.0342))]  # fmt: skip
    [finding] = asked("scaling", *tests)
    assert "TPOT -27.0 %, TTFT +94.9 % at batch 1 (efficiency 69 %)" in finding.sentences[0]


def test_a_point_that_was_preempted_has_no_efficiency():
    def told(gpus, tpot, **record):
        return case(f"s[{gpus}]", batch=16, engine={"tensor_parallel_size": gpus}, record=record,
                    values={"tpot": tpot, "throughput": 16 / tpot, "tpj": 1.0})  # fmt: skip

    preempted = {"conditions": {"preemptions": {"unit": "1", "launches": [18.0], "value": 18.0, "baseline": None,
                                                "baseline_launches": [], "reason": None}}}  # fmt: skip
    [finding] = asked("scaling", told(1, 0.04, **preempted), told(2, 0.02), told(4, 0.0125))
    assert finding.sentences == [
        "4 GPUs against 2 (512 + 256 tokens): TPOT -37.5 %, throughput +60.0 % at batch 16 (efficiency 80 %), "
        "energy per "
        "token 0.0 %.",
        "On 1 GPU batch 16 does not fit into the KV cache (18 preemptions a launch): what more GPUs bring over it is "
        "memory, and no efficiency (2 GPUs: TPOT -50.0 %, throughput +100.0 %).",
    ]
    assert column(finding, "efficiency") == [None, 1.0, pytest.approx(0.8)]
    assert column(finding, "preemptions") == [18, None, None]


def test_a_cache_that_is_too_small_for_the_batch_is_known_without_preemptions():
    small, large = ({"num_gpu_blocks": blocks, "block_size": 16} for blocks in (100, 1000))
    tests = [case(f"s[{n}]", batch=16, engine={"tensor_parallel_size": n, "limits": small if n == 1 else large},
                  values={"tpot": 0.04 / n}) for n in (1, 2)]  # fmt: skip
    [finding] = asked("scaling", *tests)
    assert "efficiency 1" not in said(finding)
    assert "On 1 GPU batch 16 does not fit into the KV cache of 1,600 tokens" in said(finding)


def test_prefills_scale_by_their_latency():
    tests = [
        case(f"s[{gpus}]", output_len=1, engine={"tensor_parallel_size": gpus}, values={"e2e_latency": 1 / gpus})
        for gpus in (2, 8)
    ]
    [finding] = asked("scaling", *tests)
    assert finding.sentences == [
        "8 GPUs against 2 (prefill of 512 tokens): latency -75.0 % at batch 1 (efficiency 100 %)."
    ]


def test_one_batch_on_each_number_of_gpus_compares_nothing():
    tests = [case(f"s{n}", batch=n, engine={"tensor_parallel_size": n}, values={"tpot": 1.0}) for n in (1, 2)]
    assert asked("scaling", *tests) == []


def models(*sizes, **more):
    return [
        case(f"m[{name}]", engine={"model": name, "dtype": dtype}, values={"e2e_latency": latency},
             record={"roof": roof(total_params=params)}, **more)
        for name, dtype, params, latency in sizes
    ]  # fmt: skip


def test_latency_against_size():
    [finding] = asked("model_size", *models(("mpt-30b", "float16", 30e9, 2.5), ("mpt-7b", "bfloat16", 6e9, 1.0)))
    assert finding.sentences == [
        "On 1 GPU mpt-30b has 5.0 times the parameters of mpt-7b and 2.5 times its latency at batch 1 (512 + 256 "
        "tokens): sub-linear in size."
    ]
    assert column(finding, "model") == ["mpt-7b", "mpt-30b"]
    [finding] = asked("model_size", *models(("b", "float16", 10e9, 9.0), ("a", "float16", 2e9, 1.0)))
    assert "super-linear" in said(finding)


def test_of_several_numbers_of_gpus_that_which_most_models_ran_on_is_told():
    few = models(("a", "float16", 1e9, 1.0), ("b", "float16", 2e9, 2.0))
    many = models(("a", "float16", 1e9, 1.0), ("b", "float16", 2e9, 2.0), ("c", "float16", 4e9, 3.0))
    for one in many:
        one["engine"]["tensor_parallel_size"] = 8
        one["nodeid"] += "-8"
    [finding] = asked("model_size", *few, *many)
    assert len(finding.rows) == 3


def test_models_of_unknown_size_are_not_compared():
    tests = models(("a", "float16", 1e9, 1.0), ("b", "float16", 2e9, 1.0))
    tests[0]["roof"] = None
    assert asked("model_size", *tests) == []


# -- policies


def policy(name, rate, throughput, latency, served=None, tpj=None, **more):
    where = {"static": {"max_batch": 8}, "dynamic": {"max_batch": 8, "max_wait": 1.0}}.get(name, {}) | more
    return case(f"p[{name}-{rate}-{more}]", rate=rate, policy=name,
                values={"throughput": throughput, "e2e_latency": latency, "tpj": tpj,
                        "request_throughput": rate if served is None else served}, **where)  # fmt: skip


def test_policies_win_in_their_regimes():
    [finding] = asked(
        "batching_policies",
        policy("continuous", 8, 400.0, 5.0, 7.0, 4.0), policy("static", 8, 200.0, 150.0, 3.51, 2.0),
        policy("dynamic", 8, 100.0, 100.0, 1.75, 1.0),
        policy("continuous", 1, 100.0, 3.0, tpj=1.0), policy("dynamic", 1, 90.0, 1.5, 0.9, tpj=0.9),
        policy("static", 1, 95.0, 9.0, 0.95, tpj=1.15),
    )  # fmt: skip
    assert finding.sentences == [
        "At 8 requests/s (512 + 256 tokens) only continuous batching keeps up: 400.0 tokens/s (4.0 times that of "
        "dynamic and 2.0 times that of static) at 5.000 s; dynamic and static fall behind: 1.8 and 3.5 of 8 "
        "requests/s; continuous has the most tokens per joule, 4.000 tokens/J (4.0 times that of dynamic and 2.0 "
        "times that of static).",
        "At 1 request/s all keep up: dynamic has the least latency, 1.500 s (2.0 times as long with continuous and "
        "6.0 times as long with static); static has the most tokens per joule, 1.150 tokens/J (+15.0 % over "
        "continuous and +27.8 % over dynamic).",
    ]


def test_the_latency_of_a_loop_that_falls_behind_is_not_held_against_others():
    """It grows with the run, and tells how long that was."""
    [finding] = asked(
        "batching_policies",
        policy("continuous", 8, 800.0, 1.0, 8.0), policy("dynamic", 8, 790.0, 2.0, 7.9),
        policy("static", 8, 400.0, 90.0, 4.0),
    )  # fmt: skip
    assert finding.sentences == [
        "At 8 requests/s (512 + 256 tokens) continuous and dynamic keep up: continuous has the least latency, 1.000 s "
        "(2.0 times as long with dynamic); static falls behind: 4.0 of 8 requests/s."
    ]


def test_policies_that_all_fall_behind_are_compared_by_what_they_serve():
    [finding] = asked(
        "batching_policies",
        policy("continuous", 64, 900.0, 20.0, 10.0), policy("dynamic", 64, 300.0, 90.0, 2.5),
        policy("static", 64, 300.0, 10.0, 2.5),
        policy("dynamic", 16, 300.0, 90.0, 2.51), policy("static", 16, 300.0, 10.0, 2.49),
    )  # fmt: skip
    assert finding.sentences == [
        "At 64 requests/s (512 + 256 tokens) all fall behind: continuous serves the most, 10.0 of 64 requests/s (4.0 "
        "times as many as dynamic and static).",
        "At 16 requests/s all fall behind: 2.5 of 16 requests/s.",
    ]


def test_of_a_trace_the_fastest_says_what_is_offered():
    def replayed(name, served, latency, tpj=None):
        return case(name, trace="t.jsonl", policy=name, values={
            "throughput": 100 * served, "request_throughput": served, "e2e_latency": latency, "tpj": tpj,
        })  # fmt: skip

    [finding] = asked("batching_policies", replayed("continuous", 10.0, 1.0), replayed("static", 5.0, 9.0))
    assert finding.sentences[0].endswith(
        "continuous batching is ahead: 1000 tokens/s (2.0 times that of static) at 1.000 s; static falls behind: 5.0 "
        "requests/s."
    )
    [finding] = asked("batching_policies", replayed("continuous", 10.0, 1.0, 2.0), replayed("static", 9.0, 9.0, 2.08))
    assert finding.sentences[0].endswith("continuous has the least latency, 1.000 s (9.0 times as long with static).")


def test_a_tie_is_a_tie():
    [finding] = asked("batching_policies", policy("continuous", 1, 100.0, 3.0), policy("static", 1, 80.0, 3.01, 0.85))
    assert finding.sentences == ["At 1 request/s (512 + 256 tokens) all keep up, and latency is the same within 2.0 %."]


def test_a_policy_with_two_batches_is_told_by_them():
    static = policy("static", 1, 100.0, 3.0), policy("static", 1, 50.0, 9.0, max_batch=32)
    [finding] = asked("batching_policies", *static, policy("continuous", 1, 200.0, 1.0))
    assert "3.0 times as long with static (batch 8) and 9.0 times as long with static (batch 32)" in said(finding)
    assert "static (batch 8)" in column(finding, "policy")


def test_one_policy_alone_is_no_comparison():
    assert asked("batching_policies", policy("static", 1, 1.0, 1.0), policy("static", 2, 1.0, 1.0)) == []


# -- formats


def formatted(name, tpot, blocks, record=None, **engine):
    engine["limits"] = {"num_gpu_blocks": blocks, "block_size": 16}
    return case(f"f[{name}]", batch=16, engine=engine, values={"tpot": tpot, "tpj": 1 / tpot}, record=record)


def test_formats_are_held_against_the_plain_one():
    outputs = {"prompts": 1, "tokens": 1, "compared_tokens": 1, "ties": 0, "token_agreement": 0.97,
               "logprob_difference": 0.1, "first_difference": None, "worst_prompt": None, "reason": None}  # fmt: skip
    [finding] = asked(
        "formats",
        formatted("plain", 0.02, 1000), formatted("kv", 0.02, 2000, kv_cache_dtype="fp8"),
        formatted("fp8", 0.012, 1500, {"outputs": outputs}, quantization="fp8"),
        formatted("eager", 0.08, 1000, args={"enforce_eager": True}),
    )  # fmt: skip
    assert (
        "Fp8 weights against float16 (512 + 256 tokens): TPOT -40.0 %, energy per token -40.0 % at batch 16."
        in finding.sentences
    )
    assert (
        "Eager against compiled (512 + 256 tokens): TPOT +300.0 %, energy per token +300.0 % at batch 16."
        in finding.sentences
    )
    assert "Room in the KV cache with fp8 KV cache: +100.0 % (32,000 tokens)." in finding.sentences
    assert "Answers with fp8 weights agree with their baseline in 97 % of the tokens." in finding.sentences
    assert column(finding, "kv_tokens") == [16000, 16000, 32000, 24000]


def test_one_format_is_no_comparison():
    assert asked("formats", formatted("plain", 0.02, 1000)) == []


# -- hardware

PEAKS = {
    "device": "Tesla V100-SXM2-32GB", "copy_bandwidth": 720e9, "host_to_device": 12e9, "device_to_host": None,
    "peer_to_peer": {"1": 40e9, "2": 20e9}, "matmul_flops": {"float16": 100e12}, "method": "copies of 1 GiB.",
}  # fmt: skip


def test_hardware_is_held_against_its_data_sheet():
    slow = {**PEAKS, "copy_bandwidth": 648e9}
    with_roof = case("t", values={"tpot": 1.0}, record={"roof": roof()})
    [finding] = asked("hardware", with_roof, peaks=[PEAKS, slow])
    assert finding.sentences[0] == (
        "Tesla V100-SXM2-32GB copies 720.0 GB/s (80 % of its data sheet) and multiplies at 100.0 TFLOP/s in float16 "
        "(80 % of its data sheet)."
    )
    assert "Device 1 copies 10 % less than device 0 of the same product." in finding.sentences
    assert "Copies of 1 GiB." in finding.sentences
    assert column(finding, "peer_to_peer") == [20e9, 20e9]
    assert column(finding, "device_to_host") == [None, None]


def test_peaks_that_were_measured_are_no_data_sheet():
    with_roof = case("t", values={"tpot": 1.0}, record={"roof": roof(source="measured by copies")})
    [finding] = asked("hardware", with_roof, peaks=[PEAKS])
    assert column(finding, "copy_share") == [None]
    assert "data sheet" not in said(finding)


def test_a_test_of_the_hardware_goes_before_what_the_session_measured():
    gauge = case("h", clock=1200.0, record={"workload": None}, values={"copy_bandwidth": 720e9, "matmul_flops": 100e12})
    quantized = case(
        "q", engine={"quantization": "fp8"}, values={"tpot": 1.0}, record={"roof": roof(peak_flops=250e12)}
    )
    stored = case("t", values={"tpot": 1.0}, record={"roof": roof()})
    [finding] = asked("hardware", quantized, stored, gauge, peaks=[PEAKS])
    assert finding.tests == ["h"]
    assert finding.sentences == [
        "Tesla V100-SXM2-32GB reaches at 1200 MHz: copy within its memory 720.0 GB/s (80 % of its data sheet); matrix "
        "product 100.0 TFLOP/s (80 % of its data sheet)."
    ]
    assert column(finding, "bandwidth") == [720e9, None]
    assert column(finding, "flops") == [None, 100e12]


# -- roof, cache, energy


def test_points_lie_under_the_roof():
    decode = step("decode", 14e9, 14e9, 0.0, 14e9 / 450e9)
    prefill = step("prefill", 14e12, 14e9, 0.0, 14e12 / 62.5e12)
    one_token = case("s.py::test_y", input_len=1, values={"tpot": 1.0}, record={"roof": roof(prefill)})
    both = case("s.py::test_x", values={"tpot": 1.0}, record={"roof": roof(decode, prefill)})
    [finding] = asked("roofline", one_token, both)
    assert column(finding, "intensity") == [1.0, 1000.0]
    assert column(finding, "share") == pytest.approx([0.5, 0.5])
    assert column(finding, "limit") == ["bandwidth", "FLOPs"]
    assert finding.sentences[0] == (
        "Decode on Tesla V100-SXM2-32GB: 1.0 FLOPs a byte with batch 1 (512 + 256 tokens), memory-bound, "
        "50 % of the roof."
    )
    marks = {mark.name: mark for mark in finding.marks}
    assert marks["balance"].x == pytest.approx(125e12 / 900e9)
    assert marks["peak_flops"].y == 125e12


def under_roof(name, batch, reached, *phases, gpus=1, **engine):
    """A test that decodes at a share of the V100s' bandwidth."""
    steps = [step(phase, 14e9 * batch, 14e9, 0.0, 14e9 / (900e9 * gpus * reached)) for phase in phases or ("decode",)]
    record = {"roof": roof(*steps, peak_flops=125e12 * gpus, peak_bandwidth=900e9 * gpus)}
    engine["tensor_parallel_size"] = gpus
    return case(f"s.py::{name}", batch=batch, values={"tpot": 1.0}, engine=engine, record=record)


def test_both_ends_under_the_roof_are_of_one_number_of_gpus():
    """Of one GPU; that two reach less at the highest batch is no fall along the roof."""
    reached = {(1, 1): 0.65, (1, 2): 0.45, (64, 1): 0.53, (64, 2): 0.39, (80, 2): 0.38}
    tests = [under_roof(f"test_tp[{gpus}-{batch}]", batch, part, gpus=gpus) for (batch, gpus), part in reached.items()]
    [finding] = asked("roofline", *tests)
    assert finding.sentences[0] == (
        "Decode on Tesla V100-SXM2-32GB, 1 GPU: 1.0 FLOPs a byte with batch 1 (512 + 256 tokens), memory-bound, 65 % "
        "of the roof; 64.0 FLOPs a byte with batch 64 (512 + 256 tokens), memory-bound, 53 % of the roof."
    )
    assert len(finding.rows) == 5


def test_both_ends_under_the_roof_are_of_one_model_as_plainly_served_as_it_was():
    tests = [under_roof(f"test_{model}[{batch}]", batch, reached, model=model)
             for model, reached in (("a", 0.9), ("b", 0.6)) for batch in (2, 4)]  # fmt: skip
    tests += [under_roof("test_b[1]", 1, 0.5, model="b"), under_roof("test_a[1]", 16, 0.8, model="a", gpus=2)]
    tests += [under_roof("test_kv", 8, 0.3, model="b", kv_cache_dtype="fp8"),
              under_roof("test_eager", 16, 0.2, model="b", args={"enforce_eager": True})]  # fmt: skip
    [finding] = asked("roofline", *tests)
    assert finding.sentences[0].startswith(
        "Decode on Tesla V100-SXM2-32GB, b, 1 GPU, float16 KV cache, compiled: 1.0 FLOPs a byte with batch 1 (512 + "
        "256 tokens), memory-bound, 50 % of the roof; 4.0 FLOPs a byte with batch 4"
    )
    # A phase of which that model has no point names another.
    [finding] = asked("roofline", *tests, under_roof("test_p", 32, 0.7, "prefill", model="a", gpus=2))
    assert finding.sentences[1].startswith(
        "Prefill on Tesla V100-SXM2-32GB, 2 GPUs, a, float16 KV cache, compiled: 32.0 FLOPs a byte"
    )


def test_roofs_of_one_device_are_told_apart_by_their_dtype():
    models = {"a": "float16", "b": "bfloat16"}
    tests = [under_roof(f"test_{model}", 1, 0.5, model=model, dtype=dtype) for model, dtype in models.items()]
    tests += [under_roof(f"test_{name}", 4, 0.5, model=name, dtype="float16") for name in ("c", "d")]
    tests.append(under_roof("test_e", 4, 0.5, model="e", dtype="bfloat16"))
    found = asked("roofline", *tests)
    assert {one.title for one in found} == {
        "Under the roof: Tesla V100-SXM2-32GB, bfloat16", "Under the roof: Tesla V100-SXM2-32GB, float16",
    }  # fmt: skip
    assert {one.sentences[0].split(":")[0] for one in found} == {
        "Decode on Tesla V100-SXM2-32GB, bfloat16, b", "Decode on Tesla V100-SXM2-32GB, float16, a",
    }  # fmt: skip


def test_several_gpus_lie_under_the_roof_of_one():
    decode = step("decode", 14e9, 14e9, 0.0, 14e9 / 900e9)
    both = roof(decode, peak_flops=250e12, peak_bandwidth=1800e9)
    two = case("s.py::test_x", values={"tpot": 1.0}, engine={"tensor_parallel_size": 2}, record={"roof": both})
    [finding] = asked("roofline", two)
    assert column(finding, "bandwidth") == pytest.approx([450e9])
    assert column(finding, "flops") == pytest.approx([450e9])
    assert column(finding, "share") == pytest.approx([0.5])
    assert "The roof of one GPU: 125.0 TFLOP/s and 900.0 GB/s" in said(finding)


def test_half_a_roof_says_why():
    one = roof(step("decode", 1.0, 1.0, 0.0, 1.0), peak_flops=None, reason="no data sheet of this board")
    [finding] = asked("roofline", case("t", values={"tpot": 1.0}, record={"roof": one}))
    assert "The roof is not whole: no data sheet of this board." in finding.sentences
    assert column(finding, "share") == [None]


def test_the_kv_cache_beside_the_weights():
    served = case("t", engine={"args": {"max_model_len": 4096}, "limits": {"num_gpu_blocks": 1000, "block_size": 16}},
                  values={"tpot": 1.0}, record={"roof": roof()})  # fmt: skip
    [finding] = asked("kv_cache", served)
    assert column(finding, "context") == [768, 1024, 2048, 4096]
    assert column(finding, "kv_bytes")[1] == 131072 * 1024
    assert column(finding, "sequences")[1] == (34359738368 - 14e9) // (131072 * 1024)
    assert column(finding, "engine_sequences") == [20, 15, 7, 3]
    assert "A token of m takes 131.1 kB of KV cache, a sequence of 1,024 tokens 134.2 MB." in finding.sentences


def test_the_kv_cache_of_unknown_memory():
    one = roof(memory_bytes=None, reason="no board was read")
    [finding] = asked("kv_cache", case("t", values={"tpot": 1.0}, record={"roof": one}))
    assert column(finding, "sequences") == [None] * len(finding.rows)
    assert "What fits beside the weights is not known: no board was read." in finding.sentences


def test_energy_is_divided_by_bytes_above_the_floor():
    decoding = [
        case(f"t{batch}", batch=batch, input_len=1, values={"jpt": 1.0, "ttft": 0.01, "e2e_latency": 1.0},
             record={"roof": roof(step("decode", 1.0, 12e9, 4e9, 0.02)), "energy": [energy(200.0, 50.0)]})
        for batch in (16, 64)
    ]  # fmt: skip
    [finding] = asked("energy_split", *decoding)
    assert asked("energy_split", decoding[0]) == []
    parts = [column(finding, name)[0] for name in ("idle_jpt", "weights_jpt", "kv_jpt")]
    assert parts == pytest.approx([0.25, 0.5625, 0.1875])
    assert finding.sentences[0] == (
        "By bytes moved, an output token's 1.000 J at batch 16 (decode of 256 tokens) go to: weights 56 %, KV "
        "cache 19 %, "
        "idle floor 25 %."
    )
    assert "not a measurement" in said(finding)


def test_a_format_is_held_against_the_plain_one_only_where_that_ran():
    def ran(batch, tpot, **engine):
        return case(f"{engine}-{batch}", batch=batch, engine=engine, values={"tpot": tpot}, record={"roof": roof()})

    [finding] = asked("formats", ran(1, 0.02), ran(1, 0.01, quantization="fp8"), ran(16, 0.02, quantization="fp8"),
                      ran(16, 0.04, quantization="awq"))  # fmt: skip
    assert finding.sentences == ["Fp8 weights against float16 (512 + 256 tokens): TPOT -50.0 % at batch 1."]


def test_a_checkpoint_in_another_format_is_the_same_model():
    stored = case("a", values={"tpot": 0.02}, record={"roof": roof()})
    awq = case("b", engine={"model": "m-awq", "quantization": "awq"}, values={"tpot": 0.01}, record={"roof": roof()})
    other = case("c", engine={"model": "n-awq", "quantization": "awq"}, values={"tpot": 0.01},
                 record={"roof": roof(total_params=1)})  # fmt: skip
    [finding] = asked("formats", stored, awq, other)
    assert finding.sentences[0].startswith("Awq weights against float16")
    assert finding.tests == ["a", "b"]


def test_a_change_of_nothing_is_no_result():
    both = [case(f"t{e}-{b}", batch=b, engine={"args": {"enforce_eager": e}}, values={"tpot": 0.02, "ttft": 0.1})
            for e in (False, True) for b in (1, 16)]  # fmt: skip
    [finding] = asked("formats", *both)
    assert finding.sentences == [
        "Eager against compiled (512 + 256 tokens): no measurable difference in TPOT and TTFT at batch 1 and batch 16."
    ]


def test_policies_as_good_as_the_best_do_not_lose():
    tests = [case(p, rate=4, policy=p, max_batch=m, values={"throughput": t, "e2e_latency": s})
             for p, m, t, s in (("continuous", None, 100.1, 1.0), ("dynamic", 8, 100.0, 1.001),
                                ("static", 8, 50.0, 4.0))]  # fmt: skip
    [finding] = asked("batching_policies", *tests)
    assert finding.sentences == [
        "At 4 requests/s (512 + 256 tokens) continuous and dynamic have the least latency, 1.000 s (4.0 times as long "
        "with static)."
    ]


def test_energy_of_compute_bound_batches_is_not_divided():
    # 4e9 bytes at 722 GB/s take 5.54 ms; 125 TFLOP/s do 346 GFLOP in half of that.
    tests = [
        case(f"t{batch}", batch=batch, input_len=1, values={"jpt": 1.0, "ttft": 0.01, "e2e_latency": 1.0},
             record={"roof": roof(step("decode", flops, 4e9, 0.0, 0.02)), "energy": [energy(200.0, 50.0)]})
        for batch, flops in ((1, 1e9), (64, 345e9), (128, 348e9))
    ]  # fmt: skip
    [finding] = asked("energy_split", *tests)
    assert column(finding, "batch") == [1, 64]
    assert (
        "Left out: batch 128 (decode of 256 tokens), where by the roofline FLOPs take more than half as long"
        in said(finding)
    )
    assert asked("energy_split", tests[0], tests[2]) == []


def test_loads_whose_energy_is_not_divided_are_told_apart_from_those_that_are():
    def decoding(batch, output, flops=1e9, ttft=0.01, prompt=1, **record):
        record = {"roof": roof(step("decode", flops, 4e9, 0.0, 0.02)), "energy": [energy(200.0, 50.0)], **record}
        return case(f"t{batch}-{output}", batch=batch, input_len=prompt, output_len=output, record=record,
                    values={"jpt": 1.0, "ttft": ttft, "e2e_latency": 1.0})  # fmt: skip

    preempted = {"conditions": {"preemptions": {"unit": "1", "launches": [18.0], "value": 18.0, "baseline": None,
                                                "baseline_launches": [], "reason": None}}}  # fmt: skip
    tests = [
        decoding(1, 128), decoding(64, 128), decoding(128, 128, flops=348e9), decoding(256, 128, ttft=0.06),
        decoding(160, 128, flops=348e9), decoding(128, 256), decoding(192, 256, **preempted),
        decoding(256, 256, ttft=0.4), decoding(2, 8, ttft=0.6, prompt=512), decoding(4, 1, ttft=1.0, prompt=512),
    ]  # fmt: skip
    [finding] = asked("energy_split", *tests)
    assert "batch 128, decode of 256 tokens" in column(finding, "load")
    assert finding.sentences[-3:] == [
        "Left out: batch 192 (decode of 256 tokens), for which the KV cache is too small.",
        "Left out: batch 128 and 160 (decode of 128 tokens), where by the roofline FLOPs take more than half as long "
        "as the bytes, and joules go into computing as well.",
        "Left out: batch 256 (decode of 128 tokens), batch 256 (decode of 256 tokens) and 1 more load, where more than "
        "5.0 % of the latency passes until the first token, and joules go into prompts.",
    ]


def test_energy_of_long_prompts_or_without_a_floor_is_not_divided():
    record = {"roof": roof(step("decode", 1.0, 12e9, 4e9, 0.02)), "energy": [energy(200.0, 50.0)]}
    long_prompt = case("t", values={"jpt": 1.0, "ttft": 0.5, "e2e_latency": 1.0}, record=record)
    no_floor = case("n", values={"jpt": 1.0, "ttft": 0.01, "e2e_latency": 1.0}, record={**record, "energy": []})
    also = case("b", batch=4, values={"jpt": 1.0, "ttft": 0.01, "e2e_latency": 1.0}, record=record)
    assert asked("energy_split", long_prompt, also) == asked("energy_split", no_floor, also) == []
