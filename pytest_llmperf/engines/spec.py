"""Which engine, on which model, with which arguments: parsed from the command line and the marker."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pytest_llmperf.engines import Engine
from pytest_llmperf.engines.site import Site
from pytest_llmperf.errors import MachineError, OptionError
from pytest_llmperf.models import Model, resolve
from pytest_llmperf.simulation.board import BOARDS

__all__ = ["EngineChoice", "EngineSpec", "build", "choose", "parse", "simulated_gpus", "specify", "vllm_platform"]

SIMULATED = tuple(f"sim:{key}" for key in BOARDS)
NAMES = ("auto", "vllm", "serve", "http://host:port", *SIMULATED)

#: Simulating one of these tells nothing about a real machine, and a gate must not mistake the one for the other.
_DEFAULT_SIMULATION = "sim:h200"
#: The model of a server that nobody named.
_UNNAMED = Model("", "", None, has_weights=True, has_tokenizer=True)
_DEFAULT_SHAPE = {"cuda": "mistral-7b", "cpu": "tiny-llama", "sim": "mistral-7b"}


@dataclass(frozen=True)
class EngineChoice:
    """What ``--llmperf-engine`` came to, before any test is known.

    Attributes:
        name: ``"vllm"``, ``"serve"``, ``"sim:h200"`` and so on, or a server's URL without anything secret; never
            ``"auto"``.
        platform: ``"cuda"`` or ``"cpu"`` (which build of vLLM), ``"sim"``, or ``"url"`` for a server that is not ours.
        treatment: The ``key=value`` arguments after the name.
        reason: Why this engine, for the header.
        url: A server's whole URL, which may hold secrets.
    """

    name: str
    platform: str
    treatment: Mapping[str, Any]
    reason: str
    url: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class EngineSpec:
    """Everything that an engine is started with; equal keys share one running engine."""

    choice: EngineChoice
    model: Model
    args: Mapping[str, Any]

    @property
    def key(self) -> str:
        """A string that is equal exactly when one engine can serve both."""
        parts = [self.choice.name, self.choice.treatment, self.model.location, self.args]
        try:
            return json.dumps(parts, sort_keys=True, default=repr)  # a marker can hold any object, a torch.dtype say
        except TypeError:  # or keys that cannot be sorted
            return repr(parts)

    @property
    def arguments(self) -> dict[str, Any]:
        """The marker's arguments with the treatment over them."""
        return {**self.args, **self.choice.treatment}


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``vllm,enforce_eager=true`` into the name and its arguments.

    Values are JSON where they parse as JSON, strings otherwise; a comma inside brackets or quotes separates
    nothing.

    Raises:
        OptionError: an argument has no ``=`` or no name, or is given twice.
    """
    name, *parts = _split(text)
    arguments: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key.isidentifier():
            raise OptionError(
                f"--llmperf-engine: {part.strip()!r} is no key=value argument.",
                remedy=f"Write {name if name in NAMES else 'URL'},key=value.",
            )
        if key in arguments:
            raise OptionError(f"--llmperf-engine: the argument {key} is given twice.")
        arguments[key] = _value(value.strip())
    return name.strip(), arguments


def _split(text: str) -> list[str]:
    parts, depth, quoted, escaped = [""], 0, False, False
    for character in text:
        if character == '"' and not escaped:
            quoted = not quoted
        elif not quoted:
            depth += (character in "[{") - (character in "]}")
        escaped = quoted and character == "\\" and not escaped
        if character == "," and not quoted and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except ValueError:
        pass
    try:
        number = float(text)  # .5, 1e-3: numbers that JSON does not know
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
    return number if math.isfinite(number) else text


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)  # 1e999 is infinite
    return number if math.isfinite(number) else _no_constant(text)


def choose(text: str, *, gpus: Sequence[str], gate_needs_gpu: bool) -> EngineChoice:
    """Turn ``--llmperf-engine`` into an engine that exists here.

    Args:
        text: The option's value.
        gpus: The product names of the GPUs that this process may use.
        gate_needs_gpu: Whether ``auto`` without a GPU is an error (``--gpu-clock``, or CI): a broken driver must
            not turn a gate into a simulation.

    Raises:
        OptionError: the engine's name is not known.
        MachineError: the engine is not installed here, or ``auto`` found no GPU where one is a must.
    """
    name, treatment = parse(text)
    if name in SIMULATED:
        from pytest_llmperf.engines.simulated import check_settings

        check_settings(name, treatment)
        return EngineChoice(name, "sim", treatment, "as asked")
    if name in ("vllm", "serve"):
        return EngineChoice(name, _installed_platform(name, gpus), treatment, "as asked")
    if name == "auto":
        return _automatic(treatment, gpus, gate_needs_gpu=gate_needs_gpu)
    if name.lower().startswith(("http://", "https://")):
        from pytest_llmperf.engines.openai.address import Address
        from pytest_llmperf.engines.openai.settings import settings_of

        settings_of(treatment)
        return EngineChoice(Address.parse(name).shown, "url", treatment, "as asked", url=name)
    from pytest_llmperf.engines.openai.address import redacted

    raise OptionError(
        f"--llmperf-engine: there is no engine {redacted(name)!r}.", remedy=f"Use one of: {', '.join(NAMES)}."
    )


def _installed_platform(name: str, gpus: Sequence[str]) -> str:
    platform = vllm_platform()
    if platform is None:
        raise MachineError(
            f"--llmperf-engine {name}: vLLM is not installed in this environment.",
            remedy="Install it with: pip install 'pytest-llmperf[vllm]' (GPU) or 'pytest-llmperf[cpu]'.",
        )
    if platform == "cuda" and not gpus:
        raise MachineError(
            f"--llmperf-engine {name}: vLLM's GPU build is installed and no GPU is visible.",
            remedy="Check nvidia-smi, or install the CPU build with: pip install 'pytest-llmperf[cpu]'.",
        )
    return platform


def _automatic(treatment: Mapping[str, Any], gpus: Sequence[str], *, gate_needs_gpu: bool) -> EngineChoice:
    platform = vllm_platform()
    if platform == "cuda" and gpus:
        return EngineChoice("vllm", "cuda", treatment, f"NVML shows {len(gpus)} x {gpus[0]}")
    if gate_needs_gpu:
        missing = "no GPU is visible to NVML" if not gpus else "vLLM's GPU build is not installed"
        raise MachineError(
            f"--llmperf-engine auto: {missing}, and with --gpu-clock or in CI nothing else may stand in for it.",
            remedy="Mend the driver or the installation, or name the engine: --llmperf-engine vllm or sim:h200.",
        )
    if platform == "cpu":
        return EngineChoice("vllm", "cpu", treatment, "no GPU build with a GPU; vLLM's CPU build is installed")
    why = "vLLM is not installed" if platform is None else "no GPU is visible to NVML"
    return EngineChoice(_DEFAULT_SIMULATION, "sim", treatment, f"{why}: every figure is simulated")


def vllm_platform() -> str | None:
    """``"cuda"``, ``"cpu"`` or ``None``: which build of vLLM is installed, without importing it."""
    if importlib.util.find_spec("vllm") is None:
        return None
    try:
        return "cpu" if "cpu" in version("vllm") else "cuda"
    except PackageNotFoundError:
        return "cpu"  # the CPU build from PyPI is a distribution of another name


def specify(choice: EngineChoice, model: str | None, args: Mapping[str, Any]) -> EngineSpec:
    """Complete a choice with a model (by default the shape that fits the platform) and the marker's arguments.

    A server that is already running knows its model; what is asked for is then its name for it, or a folder or shape
    that says what it is.

    Raises:
        OptionError: there is no such model.
    """
    if choice.platform != "url":
        return EngineSpec(choice, resolve(model or _DEFAULT_SHAPE[choice.platform]), dict(args))
    try:
        return EngineSpec(choice, resolve(model) if model else _UNNAMED, dict(args))
    except OptionError:
        assert model is not None
        return EngineSpec(choice, Model(model, model, None, has_weights=True, has_tokenizer=True), dict(args))


def simulated_gpus(spec: EngineSpec) -> int:
    """Over how many boards a simulated engine splits its model; what makes no sense is the engine's to refuse."""
    name = "tensor_parallel_size"
    given = spec.choice.treatment.get(name, spec.args.get(name, 1))
    return given if type(given) is int and given > 0 else 1


def build(spec: EngineSpec, *, launch: int = 0, log_path: str | None = None, site: Site | None = None) -> Engine:
    """The engine that ``spec`` describes, not yet opened.

    Args:
        spec: What to start.
        launch: Which start of this engine it is, from 0.
        log_path: Where a real engine's own output goes; ``None`` discards it after use.
        site: The session around it.

    Raises:
        OptionError: an argument of a server engine is wrong.
    """
    site = site or Site()
    if spec.choice.platform == "sim":
        from pytest_llmperf.engines.simulated import SimulatedEngine

        return SimulatedEngine(spec, launch, site.simulated_boards and site.simulated_boards(simulated_gpus(spec)))
    if spec.choice.platform == "url":
        from pytest_llmperf.engines.openai.engine import OpenAIEngine

        return OpenAIEngine(spec, site)
    if spec.choice.name == "serve":
        from pytest_llmperf.engines.server.engine import ServeEngine

        return ServeEngine(spec, site, log_path)
    from pytest_llmperf.engines.vllm import VllmEngine

    return VllmEngine(spec, log_path)
