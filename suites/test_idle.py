"""What does a GPU draw that does nothing: bare, with a context, with a model loaded, at a locked clock?

The floor of every joule: what an idle board draws is paid whether tokens come or not. The rungs are read one after
the other, before anything else runs on the boards.

Options: ``--gpu-clock`` adds the locked rung; without it that rung is null, with the reason. ``-m sweep`` reads it at
every clock of the grid.

Found: about 23 W bare on a V100; on H200 79 to 84 W bare, 120 to 123 W with a context, 120 to 125 W with a model:
it is the context that costs.
"""

import pytest

pytestmark = pytest.mark.usefixtures("boards")


def test_floor(llmperf):
    llmperf.check_idle()


@pytest.mark.sweep
@pytest.mark.usefixtures("boards", "gpu_clock")
def test_floor_at_clock(llmperf):
    llmperf.check_idle()
