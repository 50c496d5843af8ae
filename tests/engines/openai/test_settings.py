"""What can be said after a server's URL."""

import pytest

from pytest_llmperf.engines.openai.settings import CLIENT_SETTINGS, HARMLESS, Settings, settings_of
from pytest_llmperf.errors import OptionError


def test_nothing_said():
    assert settings_of({}) == Settings()


def test_everything_said():
    said = {
        "hardware": "H200", "devices": 8, "dtype": "bfloat16", "quantization": "fp8", "kv_cache_dtype": "fp8",
        "tensor_parallel_size": 4, "pipeline_parallel_size": 2, "workers": 3, "stamps": "user", "realtime": False,
        "api_key_env": "MY_KEY", "ca_file": "/x", "verify": False, "calibrate": False,
    }  # fmt: skip
    assert settings_of(said) == Settings(**said)
    assert set(said) >= CLIENT_SETTINGS


def test_arguments_of_engines_of_ours_that_change_nothing():
    assert settings_of(dict.fromkeys(HARMLESS, 1)) == Settings()


@pytest.mark.parametrize("name", ["devices", "tensor_parallel_size", "pipeline_parallel_size", "workers"])
@pytest.mark.parametrize("value", [0, -1, 1025, 1.5, "2", True, None, [1]])
def test_counts(name, value):
    with pytest.raises(OptionError, match=rf"{name} is a whole number of at least 1, not "):
        settings_of({name: value})


@pytest.mark.parametrize("name", ["verify", "calibrate", "realtime"])
@pytest.mark.parametrize("value", [0, 1, "yes", None])
def test_switches(name, value):
    with pytest.raises(OptionError, match=f"{name} is true or false, not {value!r}"):
        settings_of({name: value})


@pytest.mark.parametrize("value", ["hardware", "", None, 1, True])
def test_stamps(value):
    with pytest.raises(OptionError, match="stamps is kernel or user"):
        settings_of({"stamps": value})


@pytest.mark.parametrize("name", ["hardware", "dtype", "quantization", "kv_cache_dtype", "ca_file", "api_key_env"])
@pytest.mark.parametrize("value", ["", 5, True, {"a": 1}])
def test_names(name, value):
    with pytest.raises(OptionError, match=f"{name} is a name, not"):
        settings_of({name: value})


def test_a_variable_needs_a_name():
    with pytest.raises(OptionError, match="api_key_env"):
        settings_of({"api_key_env": None})


@pytest.mark.parametrize("name", ["hardware", "dtype", "quantization", "kv_cache_dtype"])
@pytest.mark.parametrize("value", ["a\udcffb", "a\x1b[2Jb", "a\nb"])
def test_names_that_no_record_could_hold(name, value):
    with pytest.raises(OptionError, match=f"{name} is a name, not") as error:
        settings_of({name: value})
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", ["api_key", "key", "token", "authorization"])
def test_a_key_on_the_command_line(name):
    with pytest.raises(OptionError, match="api_key_env=NAME") as error:
        settings_of({name: "sk-secret"})
    assert "sk-secret" not in str(error.value)


def test_a_misspelt_name():
    with pytest.raises(OptionError, match=r"'worker'\. Did you mean 'workers'\?"):
        settings_of({"worker": 2})
    with pytest.raises(OptionError, match=r"no engine argument 'max_num_seqs'\. What can be said of it: hardware, "):
        settings_of({"max_num_seqs": 2})
