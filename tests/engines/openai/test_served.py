"""Which model a server serves, by listings as odd as they come."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.engines.openai.address import Secrets
from pytest_llmperf.engines.openai.served import ServedModel, find_model, presentable
from pytest_llmperf.errors import OptionError
from pytest_llmperf.models import resolve, shape_folder

from .loads import UNNAMED

NAMED = replace(UNNAMED, name="org/model", location="org/model")


def listing(*entries):
    return {"object": "list", "data": [e if isinstance(e, dict) else {"id": e} for e in entries]}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "data", "root", "max_model_len", "owned_by", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(json_values | st.builds(lambda entries: {"data": entries}, st.lists(json_values, max_size=4)))
def test_no_listing_breaks_it(value):
    served = find_model(value, UNNAMED)
    assert isinstance(served.id, str)
    assert served.max_model_len is None or served.max_model_len > 0
    assert isinstance(served.maker, str)


@pytest.mark.parametrize(
    "value", [None, [], {}, {"data": None}, {"data": {}}, {"data": [1, None, {"id": 5}, {}]}, "x", 5]
)
def test_a_server_that_lists_nothing_is_taken_at_our_word(value):
    assert find_model(value, NAMED) == ServedModel("org/model", None, None, "org/model")
    served = find_model(value, UNNAMED)
    assert replace(served, warnings=()) == ServedModel("", None, None, "unknown")
    assert len(served.warnings) == 1


def test_the_first_unless_somebody_asked():
    served = find_model(listing({"id": "a", "max_model_len": 10, "owned_by": "vllm"}, "b"), UNNAMED)
    assert replace(served, warnings=()) == ServedModel("a", None, 10, "a", "vllm")
    assert served.warnings == (
        "The server serves 2 models, of which a was measured: a, b. Choose one with --llmperf-model NAME.",
    )
    assert find_model(listing("a", "a"), UNNAMED).warnings == ()


def test_the_one_that_was_asked_for_by_id_or_root():
    assert find_model(listing("a", "org/model"), NAMED).id == "org/model"
    served = find_model(listing("a", {"id": "alias", "root": "org/model"}), NAMED)
    assert (served.id, served.name) == ("alias", "org/model")


def test_one_that_is_not_there():
    with pytest.raises(OptionError, match=r"does not serve org/model\. It serves: a, b"):
        find_model(listing("a", "b"), NAMED)


def test_a_shape_says_what_the_only_model_is():
    shape = resolve("tiny-llama")
    served = find_model(listing("whatever"), shape)
    assert (served.id, served.config, served.name) == ("whatever", shape.config, shape.name)
    with pytest.raises(OptionError):
        find_model(listing("a", "b"), shape)


@pytest.mark.parametrize("length", [0, -5, "4096", None, 4.5, True, [1]])
def test_lengths_that_are_none(length):
    assert find_model(listing({"id": "a", "max_model_len": length}), UNNAMED).max_model_len is None


def test_a_folder_that_lies_here(tmp_path):
    config = dict(resolve("tiny-llama").config)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_text("{}")
    served = find_model(listing({"id": "alias", "root": str(tmp_path)}), UNNAMED)
    assert dict(served.config) == config
    assert served.tokenizer == str(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("place", ["/no/such/folder", "/nul\x00byte", "/" + "x" * 5000, "/dev/null", "//", "/\ud800"])
def test_folders_that_do_not_lie_here(place):
    assert find_model(listing({"id": "alias", "root": place}), UNNAMED).config is None
    assert find_model(listing(place), UNNAMED).id == place


def test_a_folder_that_nobody_may_read(monkeypatch, tmp_path):
    def forbidden(self, *_, **__):
        raise PermissionError(13, "Permission denied", str(self))

    for name in ("is_file", "is_dir", "exists", "stat", "open", "read_text", "read_bytes"):
        monkeypatch.setattr(Path, name, forbidden)
    assert find_model(listing({"id": "alias", "root": "/root/models/x"}), UNNAMED).config is None


def test_a_folder_that_a_server_elsewhere_names_is_not_ours():
    entry = {"id": "m", "root": shape_folder("tiny-llama")}
    assert find_model(listing(entry), UNNAMED).name == "tiny-llama"
    elsewhere = find_model(listing(entry), UNNAMED, on_this_machine=False)
    assert (elsewhere.name, elsewhere.config) == ("m", None)


KEY = "sk-verysecretkey-0123456789"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("org/Model é", "org/Model é"),
        ("a\ud800b", "a\\ud800b"),
        ("a\x1b[31mb\r\n\x00\x9b", "a\\x1b[31mb\\r\\n\\x00\\x9b"),
        ("\u202eabc", "\\u202eabc"),
        (f"of {KEY}", "of ***"),
        ("", ""),
    ],
)
def test_names_of_servers_are_made_presentable(name, shown):
    assert presentable(name, Secrets((KEY,))) == shown
    served = find_model(listing({"id": name, "owned_by": name}), UNNAMED, secrets=Secrets((KEY,)))
    assert (served.id, served.name, served.maker) == (name, shown, shown)
    assert KEY not in repr(served)


@given(st.text(st.characters()))
def test_any_name_can_be_shown(name):
    shown = presentable(name, Secrets(("secret",)))
    assert shown.isprintable()
    assert len(shown) <= 200


def test_long_names_are_cut_and_stay_different():
    names = ["x" * 1_000_000, "x" * 999_999 + "y", "\x1b" * 150, "x" * 190 + KEY * 3]
    shown = [presentable(name, Secrets((KEY,))) for name in names]
    assert len(set(shown)) == len(names)
    assert all(len(one) <= 200 and KEY[:8] not in one for one in shown)


def test_the_models_that_a_message_lists():
    entries = [f"m{n}\x1b" for n in range(25)]
    with pytest.raises(OptionError) as error:
        find_model(listing(KEY, *entries), NAMED, secrets=Secrets((KEY,)))
    assert str(error.value).endswith("It serves: ***, " + ", ".join(f"m{n}\\x1b" for n in range(19)) + " and 6 more.")


def test_another_model_than_the_one_that_lies_here():
    entry = {"id": "m", "root": shape_folder("tiny-llama")}
    with pytest.raises(OptionError, match=r"serves tiny-llama, and --llmperf-model says mistral-7b.*Leave --llmperf"):
        find_model(listing(entry), resolve("mistral-7b"))
    assert find_model(listing(entry), resolve("tiny-llama")).name == "tiny-llama"
