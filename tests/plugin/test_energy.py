"""Energy in a session: measured, gated on the same board, advisory on another, missing with a reason."""

import gzip
import json

import pytest

from pytest_llmperf.gpu.sampling.file import load_samples
from pytest_llmperf.plugin.instruments import Instruments
from tests.fake_nvml.busy import busy_while, prefill

from .quick import FILL_S
from .servers import FakeServer
from .stored import rewrite

SUITE = """
import pytest
from pytest_llmperf import Workload

@pytest.mark.llmperf(tolerance={"ttft": "1000000%", "tpot": "1000000%", "tpj": "30%"})
def test_decode(llmperf):
    run = llmperf.check(Workload(1, 120, batch=2))
    print("POWER", run.metrics.power.value)
"""
H200 = "sim:h200"
#: The simulated board's launches are all alike; those of a fake one differ by a tenth where the machine is busy.
SAVE, GATE = ("--llmperf-save", "--llmperf-launches=2"), ("--llmperf-launches=3",)
SAVE_MORE, GATE_MORE = ("--llmperf-save", "--llmperf-launches=4"), ("--llmperf-launches=8",)
#: Two requests in flight: 0.5 + 2/32 of the board's 520 W, above the 79 W of an idle one. It rests between requests.
BUSY_W = 79 + 520 * (0.5 + 2 / 32)


class Bench:
    """A server on one fake board that is busy while it answers, or not at all."""

    def __init__(self, pytester, fake, server):
        self.folder, self.fake, self.server, self._pytester = pytester.path, fake, server, pytester
        #: What happens once it has been warmed up.
        self.then = lambda: None

    def run(self, *arguments, text=SUITE, engine=None):
        self._pytester.makepyfile(test_suite=text)
        engine = engine or f"http://{self.server.address},calibrate=false"
        return self._pytester.runpytest(
            f"--llmperf-engine={engine}", "--llmperf-report=report", "-p", "no:cacheprovider", "-s",
            "--llmperf-repeats=1", "--llmperf-launches=1", *arguments,
        )  # fmt: skip

    def results(self):
        return json.loads((self.folder / "report" / "results.json").read_text())

    def record(self):
        (test,) = self.results()["tests"]
        return test

    def baseline(self):
        (path,) = (self.folder / "baselines").rglob("*.json")
        return json.loads(path.read_text())


@pytest.fixture
def bench(pytester, fake_nvml, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(Instruments, "_fill_s", FILL_S)

    def answer(number):
        prefill(server.requests[number])
        if server.requests[number]["max_tokens"] == 120 and number >= 6:
            bench.then()

    server = FakeServer(answer)
    bench = Bench(pytester, fake_nvml, server)
    with server, busy_while(lambda: len(server.requests) - server.answered, fake_nvml.state / "load.0"):
        yield bench


def values(record):
    return {name: metric["value"] for name, metric in record["metrics"].items()}


def test_a_launch_has_its_energy_and_everything_that_follows(bench):
    bench.run("--llmperf-save").assert_outcomes(passed=1)
    record = bench.record()
    found = values(record)
    (energy,) = record["energy"]
    assert 200 < found["power"] < 1.01 * BUSY_W
    assert found["jpt"] == pytest.approx(1 / found["tpj"])
    assert found["tpj"] == pytest.approx(
        found["throughput"] * energy["busy"] / found["power"], rel=0.4
    )  # one repeat of several
    assert found["net_tpj"] > found["tpj"]
    assert found["decode_jpt"] == pytest.approx(found["jpt"])
    assert found["sm_clock"] == 1980e6
    assert found["memory_used"] > 0
    # The board shows 62 % at full load.
    assert 0.2 < found["dram_utilization"] < 0.62 * (0.5 + 2 / 32)
    assert (energy["source"], energy["reason"]) == ("counter", None)
    assert 0 < energy["error"] < 0.03 * energy["joules"]
    assert energy["power"] == pytest.approx(energy["integral_power"], rel=0.2)  # bursts, read every 100 ms
    assert energy["joules"] == pytest.approx(energy["power"] * energy["seconds"])
    # Shorter than the sensors can see, it was repeated; one repeat had been asked for.
    assert (
        energy["seconds"] >= 0.9 * bench.results()["environment"]["sensor"]["boards"].popitem()[1]["shortest_window_s"]
    )
    assert energy["repeats"] > 1
    assert [len(launch) for launch in record["metrics"]["tpot"]["launches"]] == [1]
    assert record["requests"]["sent"] == 2
    assert record["metrics"]["tpj"]["launches"] == [[found["tpj"]]]
    assert record["clock"]["requested_mhz"] is None
    assert record["clock"]["observed_mhz"]["median"] == 1980


def test_the_samples_are_kept(bench):
    bench.run("--llmperf-save")
    (path,) = (bench.folder / "report" / "traces").glob("*.samples.jsonl.gz")
    with gzip.open(path, "rt") as file:
        ((launch, samples),) = map(load_samples, file)
    assert launch == 0
    assert samples.uuid == bench.results()["environment"]["gpus"][0]["uuid"]
    assert len(samples.at_ns) > 50
    assert samples.counter_j[-1] > samples.counter_j[0]


def test_a_baseline_keeps_energy_by_board_and_gates_on_that_one(bench):
    bench.run(*SAVE_MORE).assert_outcomes(passed=1)
    stored = bench.baseline()
    (uuid,) = stored["boards"]
    assert stored["boards"][uuid]["metrics"]["tpj"]["value"] > 0
    assert "tpj" not in stored["metrics"]
    assert "tpot" in stored["metrics"]
    bench.run(*GATE_MORE).assert_outcomes(passed=1)
    (tpj,) = [v for v in bench.record()["verdicts"] if v["metric"] == "tpj"]
    assert tpj["verdict"] in ("pass", "improved")
    # The same work at nearly twice the power.
    bench.fake.set(0, dynamic_w=1000)
    bench.run(*GATE_MORE).assert_outcomes(failed=1)
    assert [v["metric"] for v in bench.record()["verdicts"] if v["verdict"] == "regressed"] == ["tpj"]


def test_on_another_board_energy_is_advisory_and_says_so(bench):
    bench.run(*SAVE).assert_outcomes(passed=1)
    first = bench.baseline()["boards"]
    other = "GPU-99999999-0000-0000-0000-000000000000"
    bench.fake.scenario("h200", f"[board 0]\nuuid = {other}\ndynamic_w = 1000\n")
    result = bench.run(*GATE, "-o", "llmperf_tolerance=1000000%")
    (tpj,) = [v for v in bench.record()["verdicts"] if v["metric"] == "tpj"]
    assert tpj["verdict"] == "not-applicable"
    assert "advisory" in tpj["reason"]
    assert other in tpj["reason"]
    assert next(iter(first)) in tpj["reason"]
    assert tpj["change"] is not None
    assert any(line.startswith("not gated: tpj: the baseline holds the energy of") for line in result.outlines)
    # Saving there keeps what is known of the first board beside it.
    bench.run("--llmperf-save").assert_outcomes(passed=1)
    assert set(bench.baseline()["boards"]) == {*first, other}


def test_a_baseline_from_where_no_board_was_read_gates_no_energy(bench):
    bench.run(*SAVE).assert_outcomes(passed=1)
    (path,) = (bench.folder / "baselines").rglob("*.json")
    rewrite(path, lambda stored: stored.update(boards={}))
    bench.run(*GATE, "-o", "llmperf_tolerance=1000000%").assert_outcomes(passed=1)
    (tpj,) = [v for v in bench.record()["verdicts"] if v["metric"] == "tpj"]
    assert (tpj["verdict"], tpj["reason"].split(" (")[0]) == (
        "not-applicable", "advisory: the baseline holds the energy of no board",
    )  # fmt: skip


def test_a_board_that_is_lost_does_not_lose_the_report(bench):
    bench.then = lambda: bench.fake.set(0, **{"error.*": "GPU_IS_LOST"})
    bench.run(text=SUITE.replace("llmperf.check", "llmperf.measure"))
    (gpu,) = bench.results()["environment"]["gpus"]
    assert gpu["name"] == "NVIDIA H200"
    assert bench.record()["verdict"] == "invalid"


def test_no_energy_any_more_is_no_pass(bench):
    bench.run("--llmperf-save").assert_outcomes(passed=1)
    bench.fake.scenario(
        "h200", "[board 0]\nenergy = NOT_SUPPORTED\npower_usage = NOT_SUPPORTED\npower_instant = NOT_SUPPORTED\n"
        "power_average = NOT_SUPPORTED\n"
    )  # fmt: skip
    bench.run().assert_outcomes(failed=1)
    (tpj,) = [v for v in bench.record()["verdicts"] if v["metric"] == "tpj"]
    assert (tpj["verdict"], tpj["current"]) == ("invalid", None)
    assert "no data now" in tpj["reason"]


def test_without_a_counter_the_power_readings_stand_and_are_named(bench):
    bench.fake.scenario("h200", "[board 0]\nenergy = NOT_SUPPORTED\npower_period_ms = 5\n")
    bench.run("--llmperf-save").assert_outcomes(passed=1)
    (energy,) = bench.record()["energy"]
    assert energy["source"] == "integral"
    assert 200 < values(bench.record())["power"] < 1.01 * BUSY_W


def test_boards_that_idle_while_requests_are_served_have_no_energy(bench):
    bench.server.answered = 10**9  # nothing seems to be in flight: the board has no load
    bench.run(text=SUITE.replace("llmperf.check", "llmperf.measure"))
    record = bench.record()
    assert record["metrics"]["tpj"]["reason"] == "the boards were idle while requests were served"
    assert any("does not run on them" in warning for warning in record["warnings"])
    assert "the boards were idle while requests were served" in (bench.folder / "report" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 90}, "slow"),
        ({"ecc_uncorrected_volatile": 3}, "could not be corrected"),
    ],
)
def test_what_happens_to_a_board_while_it_is_measured_makes_it_invalid(bench, change, words):
    bench.then = lambda: bench.fake.set(0, **change)
    bench.run(text=SUITE.replace("llmperf.check", "llmperf.measure")).assert_outcomes(failed=1)
    assert words in bench.record()["invalid"]


def test_a_foreign_process_makes_it_invalid(bench):
    bench.fake.scenario("h200", "[board 0]\nprocesses = self:500 1:300\n")
    bench.run(text=SUITE.replace("llmperf.check", "llmperf.measure"))
    assert "1" in bench.record()["invalid"]


PHASES = """
from pytest_llmperf import Workload

def test_phases(llmperf):
    run = llmperf.check_phases(Workload(512, 128, batch=4))
    print("RATIO", run.metrics.decode_jpt.value / run.metrics.prefill_jpt.value)
"""


class TestPhases:
    def run(self, bench, *arguments, engine=H200):
        return bench.run(*arguments, text=PHASES, engine=engine)

    def test_what_a_token_of_either_phase_costs_is_measured_and_gated(self, bench):
        self.run(bench, "--llmperf-save").assert_outcomes(passed=1)
        record = bench.record()
        found = values(record)
        assert found["decode_jpt"] > 10 * found["prefill_jpt"]
        (phases,) = record["phases"]
        assert len(phases["windows"]) == 5
        assert phases["regression"]["decode_jpt"] == pytest.approx(found["decode_jpt"], rel=0.1)
        # Both share steps in one of the two, and the power limit acts on runs of prompts alone.
        assert phases["regression"]["prefill_jpt"] == pytest.approx(found["prefill_jpt"], rel=0.25)
        self.run(bench, *SAVE).assert_outcomes(passed=1)
        self.run(bench, *GATE).assert_outcomes(passed=1)
        assert {v["metric"] for v in bench.record()["verdicts"]} >= {"prefill_jpt", "decode_jpt", "tpj", "tpot"}
        self.run(bench, *GATE, engine=f"{H200},power_scale=1.2").assert_outcomes(failed=1)
        regressed = {v["metric"] for v in bench.record()["verdicts"] if v["verdict"] == "regressed"}
        # Where the power limit acts on it, prefill draws what that allows, before and after.
        assert regressed - {"prefill_jpt"} == {"tpj", "decode_jpt"}

    def test_one_tolerance_for_all_metrics_is_theirs_too(self, bench):
        self.run(bench, *SAVE)
        scaled = f"{H200},power_scale=1.15"
        self.run(bench, *GATE, "-o", "llmperf_tolerance=100%", engine=scaled).assert_outcomes(passed=1)

    def test_the_page_shows_them_and_every_window_is_kept(self, bench):
        self.run(bench, "--llmperf-save")
        traces = bench.folder / "report" / "traces"
        assert len(list(traces.glob("*.samples.jsonl.gz"))) == 5
        assert len(list(traces.glob("*.jsonl"))) == 5
        page = (bench.folder / "report" / "report.html").read_text()
        assert "regression:" in page
        assert "J an output token" in page

    def test_a_workload_that_cannot_be_taken_apart_is_refused(self, bench):
        result = bench.run(text=PHASES.replace("512, 128", "512, 1"), engine=H200)
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["*512 + 1 tokens cannot be told apart*"])
