from __future__ import annotations

import json

import pytest

from pytest_llmperf.errors import OptionError
from pytest_llmperf.models import config_digest, resolve, shapes


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "my-model"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": "llama"}')
    return path


def test_shapes_are_shipped():
    assert {"mistral-7b", "tiny-llama"} <= set(shapes())
    assert shapes() == sorted(shapes())


@pytest.mark.parametrize("name", shapes())
def test_a_shape_is_a_config_without_weights(name):
    model = resolve(name)
    assert model.name == name
    assert model.config["model_type"]
    assert (model.has_weights, model.has_tokenizer) == (False, False)


def test_a_shape_is_found_before_a_folder_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "tiny-llama").mkdir()
    monkeypatch.chdir(tmp_path)
    assert resolve("tiny-llama").config["model_type"]


def test_a_folder_is_called_by_its_last_component(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in (str(folder), f"{folder}/", ".", "../my-model"):
        model = resolve(name)
        assert (model.name, model.location) == ("my-model", str(folder))
        assert model.config == {"model_type": "llama"}


def test_a_folder_below_home_is_found(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    assert resolve("~/my-model").location == str(folder)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin", "consolidated.00.pt", "model-q4.gguf"])
def test_weights_are_noticed(folder, file):
    assert not resolve(str(folder)).has_weights
    (folder / file).touch()
    assert resolve(str(folder)).has_weights


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json"])
def test_a_tokenizer_is_noticed(folder, file):
    assert not resolve(str(folder)).has_tokenizer
    (folder / file).touch()
    assert resolve(str(folder)).has_tokenizer


@pytest.mark.parametrize("name", ["meta-llama/Llama-3.1-8B", "org/name", "a/b_c-d.e", "01-ai/Yi-6B"])
def test_an_id_of_the_hub_is_left_to_the_engine(name):
    model = resolve(name)
    assert (model.name, model.location, model.config) == (name, name, None)


def test_a_folder_is_found_before_an_id_of_its_name(folder, monkeypatch):
    monkeypatch.chdir(folder.parent.parent)
    assert resolve(f"{folder.parent.name}/my-model").config == {"model_type": "llama"}


@pytest.mark.parametrize(
    "name", ["mistral7b", "a/b/c", "/nowhere", "../nowhere", "org/", "/name", "org/na me", "a\0b", "org/name\n"]
)
def test_any_other_name_is_refused_with_what_there_is(name):
    with pytest.raises(OptionError, match=r"no folder, no Hugging Face id and no shipped shape.*mistral-7b") as refused:
        resolve(name)
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b"[1]", b"null"])
def test_a_folder_without_a_config_that_can_be_read_is_refused_by_name(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(OptionError, match=r"config\.json") as refused:
        resolve(str(tmp_path))
    assert str(tmp_path) in str(refused.value)


class TestDigest:
    def test_it_never_changes(self):
        assert config_digest({"model_type": "llama", "hidden_size": 64}) == "fbbbf43a0668"

    def test_it_is_of_the_content_and_not_of_its_order(self):
        assert config_digest({"a": 1, "b": [2]}) == config_digest(json.loads('{"b": [2], "a": 1}'))
        assert config_digest({"a": 1}) != config_digest({"a": 2})
