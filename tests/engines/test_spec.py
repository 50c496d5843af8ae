from __future__ import annotations

import importlib.util
import json
import sys
from importlib import resources
from importlib.metadata import PackageNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf import simulation
from pytest_llmperf.engines import spec as spec_module
from pytest_llmperf.engines.simulated import SimulatedEngine
from pytest_llmperf.engines.spec import NAMES, SIMULATED, EngineChoice, build, choose, parse, specify, vllm_platform
from pytest_llmperf.errors import MachineError, OptionError

from ..fakes import spec_with

H200 = ["NVIDIA H200"]


class TestParse:
    @pytest.mark.parametrize(
        ("text", "name", "arguments"),
        [
            ("vllm", "vllm", {}),
            (" vllm , a=1 ", "vllm", {"a": 1}),
            ("vllm,enforce_eager=true", "vllm", {"enforce_eager": True}),
            ("vllm,enforce-eager=True,x=None,y=False", "vllm", {"enforce_eager": True, "x": None, "y": False}),
            ("sim:h200,seed=3,slowdown=1.05", "sim:h200", {"seed": 3, "slowdown": 1.05}),
            ("vllm,a=.5,b=1e-3,c=-2", "vllm", {"a": 0.5, "b": 0.001, "c": -2}),
            ("vllm,dtype=bfloat16", "vllm", {"dtype": "bfloat16"}),
            ("vllm,a=x=y", "vllm", {"a": "x=y"}),
            ("vllm,a=", "vllm", {"a": ""}),
            ('vllm,a="1"', "vllm", {"a": "1"}),
            ('vllm,a="x,y",b=2', "vllm", {"a": "x,y", "b": 2}),
            ('vllm,a="x[,y",b=2', "vllm", {"a": "x[,y", "b": 2}),
            (r'vllm,a="x\",y",b=2', "vllm", {"a": 'x",y', "b": 2}),
            (r'vllm,a="x\\",b=2', "vllm", {"a": "x\\", "b": 2}),
            ("vllm,a=[1,2],b=3", "vllm", {"a": [1, 2], "b": 3}),
            ('vllm,a={"b":[1,{"c":2}],"d":"}"},e=3', "vllm", {"a": {"b": [1, {"c": 2}], "d": "}"}, "e": 3}),
        ],
    )
    def test_the_name_and_its_arguments_are_taken_apart(self, text, name, arguments):
        assert parse(text) == (name, arguments)

    @pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "inf", "nan", "1e999", "-1e999", "[1e999]"])
    def test_a_number_that_no_record_can_keep_stays_text(self, value):
        assert parse(f"vllm,a={value}") == ("vllm", {"a": value})

    @pytest.mark.parametrize("text", ["vllm,eager", "vllm,=1", "vllm,", "vllm,1a=2", "vllm,a b=2", "vllm,,a=1"])
    def test_what_is_no_argument_is_refused_with_what_to_write(self, text):
        with pytest.raises(OptionError, match=r"--llmperf-engine: .* no key=value argument.*vllm,key=value"):
            parse(text)

    @pytest.mark.parametrize("text", ["vllm,a=1,a=2", "vllm,a-b=1,a_b=1"])
    def test_an_argument_given_twice_is_refused(self, text):
        with pytest.raises(OptionError, match="given twice"):
            parse(text)

    @given(
        st.dictionaries(
            st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers()
                | st.floats(allow_nan=False, allow_infinity=False)
                | st.text(),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
                max_leaves=5,
            ),
            max_size=4,
        )
    )
    def test_arguments_written_as_json_are_read_again(self, arguments):
        text = ",".join(["vllm", *(f"{name}={json.dumps(value)}" for name, value in arguments.items())])
        assert parse(text) == ("vllm", arguments)


@pytest.fixture
def platform(monkeypatch):
    return lambda name: monkeypatch.setattr(spec_module, "vllm_platform", lambda: name)


class TestChoose:
    @pytest.mark.parametrize("name", SIMULATED)
    @pytest.mark.parametrize("gate_needs_gpu", [False, True])
    def test_a_simulation_that_was_asked_for_is_given_anywhere(self, platform, name, gate_needs_gpu):
        platform(None)
        choice = choose(f"{name},seed=1", gpus=[], gate_needs_gpu=gate_needs_gpu)
        assert choice == EngineChoice(name, "sim", {"seed": 1}, "as asked")

    @pytest.mark.parametrize(("installed", "gpus"), [("cuda", H200), ("cpu", H200), ("cpu", [])])
    @pytest.mark.parametrize("gate_needs_gpu", [False, True])
    def test_vllm_that_was_asked_for_runs_on_the_build_that_is_installed(
        self, platform, installed, gpus, gate_needs_gpu
    ):
        platform(installed)
        choice = choose("vllm,a=1", gpus=gpus, gate_needs_gpu=gate_needs_gpu)
        assert choice == EngineChoice("vllm", installed, {"a": 1}, "as asked")

    def test_vllm_that_is_not_installed_says_how_to_install_it(self, platform):
        platform(None)
        with pytest.raises(MachineError, match=r"not installed.*pip install"):
            choose("vllm", gpus=H200, gate_needs_gpu=False)

    def test_vllm_for_gpus_without_one_is_refused(self, platform):
        platform("cuda")
        with pytest.raises(MachineError, match=r"no GPU is visible.*nvidia-smi"):
            choose("vllm", gpus=[], gate_needs_gpu=False)

    @pytest.mark.parametrize("gate_needs_gpu", [False, True])
    def test_auto_takes_the_gpus(self, platform, gate_needs_gpu):
        platform("cuda")
        choice = choose("auto,a=1", gpus=H200 * 2, gate_needs_gpu=gate_needs_gpu)
        assert choice == EngineChoice("vllm", "cuda", {"a": 1}, "NVML shows 2 x NVIDIA H200")

    @pytest.mark.parametrize("gpus", [[], H200])
    def test_auto_falls_back_to_the_cpu_build_and_says_so(self, platform, gpus):
        platform("cpu")
        choice = choose("auto", gpus=gpus, gate_needs_gpu=False)
        assert (choice.name, choice.platform) == ("vllm", "cpu")
        assert "CPU build" in choice.reason

    @pytest.mark.parametrize(
        ("installed", "gpus", "why"),
        [(None, [], "vLLM is not installed"), (None, H200, "vLLM is not installed"), ("cuda", [], "no GPU is visible")],
    )
    def test_auto_falls_back_to_a_simulation_and_says_so(self, platform, installed, gpus, why):
        platform(installed)
        choice = choose("auto", gpus=gpus, gate_needs_gpu=False)
        assert (choice.name, choice.platform) == ("sim:h200", "sim")
        assert why in choice.reason
        assert "every figure is simulated" in choice.reason

    @pytest.mark.parametrize(
        ("installed", "gpus", "missing"),
        [
            (None, [], "no GPU is visible"),
            ("cpu", [], "no GPU is visible"),
            ("cuda", [], "no GPU is visible"),
            ("cpu", H200, "GPU build is not installed"),
            (None, H200, "GPU build is not installed"),
        ],
    )
    def test_where_a_gate_needs_a_gpu_nothing_stands_in_for_it(self, platform, installed, gpus, missing):
        platform(installed)
        with pytest.raises(MachineError, match=missing):
            choose("auto", gpus=gpus, gate_needs_gpu=True)

    @pytest.mark.parametrize("name", ["", "vLLM", "sim", "sim:b200", "gpu", "sim:h200:2"])
    def test_a_name_that_is_none_is_refused_with_those_that_are(self, platform, name):
        platform("cuda")
        with pytest.raises(OptionError, match="there is no engine") as refused:
            choose(name, gpus=H200, gate_needs_gpu=False)
        assert all(known in str(refused.value) for known in NAMES)

    def test_there_is_a_simulated_engine_for_every_file_of_a_board_and_it_is_listed(self, platform):
        platform(None)
        files = (resources.files(simulation) / "boards").iterdir()
        assert set(SIMULATED) == {"sim:" + file.name.removesuffix(".toml") for file in files}
        with pytest.raises(OptionError, match="sim:v100, sim:a100, sim:a100-40gb, sim:h100, sim:h200"):
            choose("sim:h100-pcie", gpus=[], gate_needs_gpu=False)


class TestPlatform:
    @pytest.mark.parametrize(
        ("found", "version", "platform"),
        [
            (None, "1", None),
            ("spec", "0.23.0", "cuda"),
            ("spec", "0.23.0+cpu", "cpu"),
            ("spec", PackageNotFoundError("vllm"), "cpu"),
        ],
    )
    def test_the_build_is_known_by_its_distribution(self, monkeypatch, found, version, platform):
        def version_of(name):
            if isinstance(version, Exception):
                raise version
            return version

        monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
        monkeypatch.setattr(spec_module, "version", version_of)
        assert vllm_platform() == platform

    def test_asking_imports_nothing(self):
        before = set(sys.modules)
        vllm_platform()
        assert "vllm" not in set(sys.modules) - before


class TestSpecify:
    @pytest.mark.parametrize(
        ("platform", "shape"), [("cuda", "mistral-7b"), ("cpu", "tiny-llama"), ("sim", "mistral-7b")]
    )
    def test_without_a_model_the_shape_that_fits_the_platform_is_taken(self, platform, shape):
        assert specify(EngineChoice("x", platform, {}, ""), None, {}).model.name == shape

    def test_a_model_that_is_none_is_refused(self):
        with pytest.raises(OptionError, match="nonsense"):
            specify(EngineChoice("vllm", "cuda", {}, ""), "nonsense", {})

    def test_the_command_line_goes_over_the_marker(self):
        choice = EngineChoice("vllm", "cuda", {"a": 1, "b": 2}, "")
        assert specify(choice, None, {"b": 3, "c": 4}).arguments == {"a": 1, "b": 2, "c": 4}


class TestKey:
    def test_what_one_engine_can_serve_has_one_key(self):
        assert spec_with(a=1, b=[2]).key == spec_with(b=[2], a=1).key

    def test_the_reason_for_the_choice_does_not_matter(self):
        one = EngineChoice("sim:h200", "sim", {}, "as asked")
        other = EngineChoice("sim:h200", "sim", {}, "vLLM is not installed")
        assert specify(one, None, {}).key == specify(other, None, {}).key

    def test_every_difference_needs_another_engine(self):
        specs = [
            specify(EngineChoice("sim:h200", "sim", {}, ""), "tiny-llama", {}),
            specify(EngineChoice("sim:h100", "sim", {}, ""), "tiny-llama", {}),
            specify(EngineChoice("sim:h200", "sim", {"seed": 1}, ""), "tiny-llama", {}),
            specify(EngineChoice("sim:h200", "sim", {}, ""), "mistral-7b", {}),
            specify(EngineChoice("sim:h200", "sim", {}, ""), "tiny-llama", {"seed": 1}),
            specify(EngineChoice("sim:h200", "sim", {}, ""), "tiny-llama", {"seed": True}),
            specify(EngineChoice("sim:h200", "sim", {}, ""), "tiny-llama", {"seed": "1"}),
        ]
        assert len({spec.key for spec in specs}) == len(specs)

    def test_an_argument_that_json_does_not_know_has_a_key_too(self):
        assert spec_with(a={1, 2}).key == spec_with(a={1, 2}).key
        assert spec_with(a={1, 2}).key != spec_with(a={1, 3}).key


def test_a_simulation_is_built_for_its_launch():
    engine = build(spec_with(), launch=3)
    assert isinstance(engine, SimulatedEngine)
