"""The plugin that makes inner sessions quick leaves nothing behind."""

from .quick import SHORTER

SUITE = """
def test_it():
    from tests.plugin.quick import SHORTER
    assert all(getattr(module, name) is value for module, name, value in SHORTER)
"""


def test_the_next_session_of_the_process_looks_at_boards_as_before(suite):
    before = [getattr(module, name) for module, name, _ in SHORTER]
    suite.write(SUITE)
    suite.run("-p", "tests.plugin.quick").assert_outcomes(passed=1)
    assert [getattr(module, name) for module, name, _ in SHORTER] == before
