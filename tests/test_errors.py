from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from pytest_llmperf import errors
from pytest_llmperf.errors import EngineError, LlmperfError, OptionError, RequestError

KINDS = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_of_one_tree_and_explained(kind):
    assert issubclass(kind, LlmperfError)
    assert inspect.getdoc(kind)
    assert kind.__name__ in (errors.__doc__ or "")


def test_every_error_of_the_module_is_public():
    defined = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert defined == set(errors.__all__)


def test_a_failed_request_can_be_told_from_a_dead_engine():
    assert issubclass(RequestError, EngineError)
    assert not issubclass(EngineError, RequestError)


@pytest.mark.parametrize(
    ("remedy", "text"), [("Do that.", "This is wrong. Do that."), (None, "This is wrong."), ("", "This is wrong.")]
)
def test_the_text_is_the_problem_followed_by_the_remedy(remedy, text):
    assert str(OptionError("This is wrong.", remedy=remedy)) == text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_an_error_survives_the_way_between_processes(kind, duplicate):
    again = duplicate(kind("This is wrong.", remedy="Do that."))
    assert type(again) is kind
    assert (again.problem, again.remedy, str(again)) == ("This is wrong.", "Do that.", "This is wrong. Do that.")
