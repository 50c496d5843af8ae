"""Which clocks a sweep takes, and which of them it leaves out on the boards at hand."""

import pytest

from pytest_llmperf.errors import OptionError
from pytest_llmperf.plugin.grid import grid_within

GRID = list(range(750, 1301, 50))


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        ((), GRID),
        (range(345, 1981, 15), GRID),
        (range(135, 1531, 7), GRID),
        (range(210, 1006, 15), [750, 800, 850, 900, 950, 1000]),
        (range(1005, 1981, 15), [1050, 1100, 1150, 1200, 1250, 1300]),
        (range(114, 625, 51), [150, 200, 250, 300, 350, 400, 450, 500, 550, 600]),
        ((1410,), [1410]),
    ],
)
def test_a_grid_ends_where_the_boards_do(supported, expected):
    assert grid_within(tuple(supported), 750, 1300, 50) == expected


@pytest.mark.parametrize("grid", [(0, 1300, 50), (1300, 750, 50), (750, 1300, 0), (750, 1300, -50)])
def test_what_is_no_grid_is_refused(grid):
    with pytest.raises(OptionError, match="grid of clocks"):
        grid_within((), *grid)


SWEEP = """
import pytest
from pytest_llmperf.plugin import clock_grid

def pytest_generate_tests(metafunc):
    if "gpu_clock" in metafunc.fixturenames and "swept" not in metafunc.function.__name__:
        metafunc.parametrize("gpu_clock", clock_grid(metafunc.config, low=1200, high=1700, step=100), indirect=True)

@pytest.mark.parametrize("gpu_clock", [100, 900, 903, 1530, 1600, 2500], indirect=True)
@pytest.mark.parametrize("other", [1, 2])
def test_swept(gpu_clock, other):
    print("at", gpu_clock, "with", other)

def test_grid(gpu_clock):
    print("grid at", gpu_clock)
"""


@pytest.fixture
def run(pytester):
    def run(*arguments):
        pytester.makepyfile(test_suite=SWEEP)
        return pytester.runpytest_inprocess(
            "-s", "-rs", "-p", "no:cacheprovider", "--llmperf-engine=sim:v100", "--llmperf-report=report", *arguments
        )

    return run


def test_a_clock_beyond_the_board_or_equal_to_another_is_skipped_with_its_range(run):
    result = run("-k", "swept")
    # Of each of the two sweeps 900 and 1530 MHz are left; 903 snaps onto 900.
    result.assert_outcomes(passed=4, skipped=8)
    text = result.stdout.str()
    for clock in (100, 1600, 2500):
        assert f"{clock} MHz is beyond the SM clocks of Tesla V100-SXM2-32GB: 135 to 1530 MHz" in text
    assert "903 MHz is 900 MHz on Tesla V100-SXM2-32GB, at which 900 MHz has been swept already" in text
    assert text.count("at 900 with 1") == text.count("at 900 with 2") == 1


def test_a_clock_that_is_swept_alone_is_no_repetition(run):
    result = run("-k", "903")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*at 900 with 1*"])


def test_a_sweep_over_the_grid_of_the_boards(run):
    result = run("-k", "grid")
    result.assert_outcomes(passed=4)
    for asked, locked in ((1200, 1200), (1300, 1297), (1400, 1402), (1500, 1500)):
        assert f"grid at {locked}" in result.stdout.str(), asked
