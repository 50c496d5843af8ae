"""The files of the simulated boards: complete, sourced, and like the data sheets."""

import tomllib
from importlib.resources import files

import pytest

from pytest_llmperf import simulation
from pytest_llmperf.errors import HardwareError
from pytest_llmperf.simulation.board import BOARDS, BoardModel, board_of


def tables(key="h200"):
    return tomllib.loads((files(simulation) / "boards" / f"{key}.toml").read_text("utf-8"))


def test_every_file_is_listed_and_every_listed_one_is_there():
    found = {file.name for file in (files(simulation) / "boards").iterdir()}
    assert found == {f"{key}.toml" for key in BOARDS}


@pytest.mark.parametrize("key", BOARDS)
class TestEveryBoard:
    def test_each_figure_has_a_source(self, key):
        lines = {f"{section}.{name}" for section, table in tables(key).items() for name in table}
        sources = BoardModel.named(key).sources
        assert set(sources) == lines
        assert len(sources) > 40
        assert all(len(source.strip()) > 2 for source in sources.values())

    def test_what_nobody_measured_is_called_a_guess(self, key):
        known = ("guess", "measured", "fit", "chosen so that", "data sheet", "NVML", "typical reading", "published",
                 "CUDA")  # fmt: skip
        assert all(source.startswith(known) for source in BoardModel.named(key).sources.values())

    def test_the_data_sheet_is_known_and_bounds_what_is_reached(self, key):
        board = BoardModel.named(key)
        assert board.hardware.peak_bandwidth > board.memory.copy_bandwidth > 0.75 * board.hardware.peak_bandwidth
        # The driver keeps something of the nominal memory for itself, or counts it in powers of two.
        assert board.product.memory_bytes == pytest.approx(board.hardware.memory_bytes, rel=0.08)
        shares = (board.memory.weights_share, board.memory.cache_share, board.compute.matmul_share,
                  board.compute.attention_share, board.power.voltage_floor)  # fmt: skip
        assert all(0 < share < 1 for share in shares)
        assert board.power.idle_w + board.power.loaded_w < board.hardware.power_limit_w / 2

    def test_clocks(self, key):
        product = BoardModel.named(key).product
        clocks = product.supported_sm_clocks_mhz
        assert (clocks[0], clocks[-1]) == product.sm_clocks_mhz[:2]
        assert list(clocks) == sorted(set(clocks))
        assert clocks[0] <= product.idle_sm_clock_mhz < clocks[-1]
        assert list(product.memory_clocks_mhz) == sorted(product.memory_clocks_mhz)
        knees = BoardModel.named(key).memory.knee_mhz, BoardModel.named(key).power.voltage_knee_mhz
        assert all(clocks[0] < knee < clocks[-1] for knee in knees)


def test_half_steps_of_the_clock_are_cut_as_the_driver_does():
    assert BoardModel.named("v100").product.supported_sm_clocks_mhz[:4] == (135, 142, 150, 157)


def test_one_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(HardwareError, match=r"(?s)'b300'.*v100, a100, a100-40gb, h100, h200"):
        BoardModel.named("b300")


def without(section, name=None):
    changed = tables()
    if name is None:
        del changed[section]
    else:
        del changed[section][name]
    return changed


def having(section, name, value):
    changed = tables()
    changed.setdefault(section, {})[name] = value
    return changed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (without("links"), r"boards/h200.toml misses links\."),
        (without("power", "limit_s"), r"boards/h200.toml misses power.limit_s\."),
        (having("cooling", "fans", {"value": 2, "source": "guess"}), r"does not know cooling\."),
        (having("power", "colour", {"value": 2, "source": "guess"}), r"does not know power.colour\."),
        (having("power", "idle_w", 79), "power.idle_w is { value = ..., source = ... }"),
        (having("power", "idle_w", {"value": 79}), "power.idle_w is"),
        (having("power", "idle_w", {"value": 79, "source": " "}), "power.idle_w is"),
        (having("power", "idle_w", {"value": 79, "source": "guess", "unit": "W"}), "power.idle_w is"),
    ],
)
def test_what_is_missing_or_unknown_is_named(changed, message):
    with pytest.raises(HardwareError, match=message):
        board_of("h200", changed)


class TestWrongFiles:
    def broken(self, section, name, value):
        found = tables()
        found[section][name]["value"] = value
        return found

    @pytest.mark.parametrize(
        ("section", "name", "value", "what"),
        [
            ("power", "idle_w", "45", "a number of at least 0"),
            ("compute", "layer_s", -1, "a number of at least 0"),
            ("power", "limit_s", float("nan"), "a number of at least 0"),
            ("memory", "knee_mhz", 0, "a number above 0"),
            ("compute", "matmul_share", 1.2, "a share of at most 1"),
            ("compute", "blend", True, "a number above 0"),
            ("product", "name", 7, "a name"),
            ("product", "sm_clocks_mhz", [345, 1980], "a list of numbers above 0"),
            ("product", "memory_clocks_mhz", [], "a list of numbers above 0"),
            ("product", "compute_capability", 9, "two numbers"),
            ("sensors", "has_activity", 1, "true or false"),
        ],
    )
    def test_a_value_that_makes_no_sense_is_named(self, section, name, value, what):
        with pytest.raises(HardwareError, match=rf"boards/h200\.toml: {section}\.{name} is {what}, not"):
            board_of("h200", self.broken(section, name, value))

    def test_a_misspelled_line_is_named_beside_the_one_that_is_missing(self):
        found = tables()
        found["power"]["loded_w"] = found["power"].pop("loaded_w")
        with pytest.raises(HardwareError, match=r"misses power\.loaded_w and does not know power\.loded_w"):
            board_of("h200", found)
