"""Options from the command line, the ini file and the marker, as two frozen dataclasses.

Light on purpose: every pytest session of every user imports this module.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_llmperf.errors import OptionError

if TYPE_CHECKING:
    import pytest

__all__ = [
    "DEFAULT_OUTPUTS_TOLERANCE",
    "DEFAULT_TOLERANCE",
    "GATED",
    "MarkerOptions",
    "SessionOptions",
    "add_options",
    "budgets",
    "outputs_tolerances",
    "parse_tolerance",
    "tolerance_for_all",
    "tolerances",
]

#: Metrics that are compared with the baseline unless the marker says otherwise.
GATED = ("ttft", "tpot", "tpj", "mbu")
#: Relative change that is tolerated when neither ini file nor marker says anything. TTFT of short prompts is a few
#: scheduling delays long: between launches of one engine on one H200 it was seen 18 to 32 ms (batch 1) and 42 to 79 ms
#: (batch 4, where it depends on which requests share the first step), TPOT within 1 %.
DEFAULT_TOLERANCE: Mapping[str, float] = {"ttft": 0.50, "tpot": 0.05, "tpj": 0.05, "mbu": 0.05}
#: By how much answers to fixed prompts may differ from the baseline's: the share of tokens that may disagree, and nat.
#: SmolLM2-135M in bfloat16 on a CPU: compiled against eager 100 % agreed and 0.04 nat, 8-bit weights 100 % and 0.06;
#: with an MLP left out 17 % and 0.17, noise of 3 % on the weights 36 % and 0.14.
DEFAULT_OUTPUTS_TOLERANCE: Mapping[str, float] = {"token_agreement": 0.10, "logprob_difference": 0.1}
#: For any other metric that a marker gates.
OTHER_TOLERANCE = 0.05

#: Engine launches of a test: to save it, to gate it (at most; a clear pass takes one), and to measure it only.
SAVE_LAUNCHES = 5
GATE_LAUNCHES = 8
MEASURE_LAUNCHES = 1
REPEATS = 3
#: Days after which a baseline is old.
MAX_AGE_DAYS = 90
#: Times a metric's tolerance: what accepted changes may come to together, measured against the anchor.
BUDGET_TOLERANCES = 2

MARKER = (
    "llmperf(tolerance=None, model=None, engine=None, outputs=None): performance test. tolerance: relative change per "
    'metric, such as {"tpot": "3%"}, or one for all gated metrics; model: as --llmperf-model; engine: engine arguments '
    "that are part of what the test is; outputs: False to compare no answers with the baseline's, or how far they may "
    'differ, such as {"token_agreement": "10%", "logprob_difference": 0.1}.'
)

#: Seconds; longer than any run, and short enough for every clock and socket.
_LONGEST_TIMEOUT = 1_000_000

_INI = (
    ("llmperf_engine", "string", "default for --llmperf-engine"),
    ("llmperf_model", "string", "default for --llmperf-model"),
    ("llmperf_baselines", "string", "default for --llmperf-baselines"),
    (
        "llmperf_connect_timeout",
        "string",
        "seconds until a connection to a server must stand (30)",
    ),
    ("llmperf_read_timeout", "string", "seconds without news on an open request until it has failed (120)"),
    ("llmperf_tolerance", "linelist", "tolerated relative change, one 'metric: 3%' a line, or '50%' for all"),
    ("llmperf_budget", "linelist", "tolerated change since the anchor, as llmperf_tolerance (twice the tolerance)"),
    ("llmperf_baseline_max_age", "string", f"days after which a baseline is old ({MAX_AGE_DAYS}; 0: never)"),
    (
        "llmperf_outputs_tolerance",
        "linelist",
        "how far answers may differ from the baseline's, 'token_agreement: 10%' and 'logprob_difference: 0.1' (nat)",
    ),
    ("llmperf_allowed_failures", "string", "failed requests that a launch may have (0)"),
)


def add_options(parser: pytest.Parser) -> None:
    """Declare the options and ini values of the plugin."""
    group = parser.getgroup("llmperf", "LLM inference performance")
    group.addoption(
        "--gpu-clock",
        metavar="MHZ",
        type=int,
        default=None,
        help="lock the SM clock of every GPU in use at MHZ (the nearest they support)",
    )
    group.addoption(
        "--gpu-memory-clock",
        metavar="MHZ",
        type=int,
        default=None,
        help="lock the memory clock likewise, alone or beside --gpu-clock; not every board can",
    )
    group.addoption(
        "--gpu-clock-mode",
        choices=("lock", "expect"),
        default="lock",
        help="lock: set the clocks; expect: only verify what an administrator locked",
    )
    group.addoption(
        "--llmperf-save", action="store_true", help=f"store this run as the baseline ({SAVE_LAUNCHES} launches)"
    )
    group.addoption(
        "--llmperf-engine",
        metavar="SPEC",
        default=None,
        help="auto, vllm, serve (vLLM's server), http://host:port or a whole URL, sim:v100, sim:a100, "
        "sim:a100-40gb, sim:h100 or sim:h200; may be followed by ,key=value arguments",
    )
    group.addoption(
        "--llmperf-model",
        metavar="NAME",
        default=None,
        help="a Hugging Face id, a folder with a config.json, or a shipped shape (mistral-7b, tiny-llama)",
    )
    group.addoption(
        "--llmperf-launches",
        metavar="N",
        type=int,
        default=None,
        help=f"engine launches per test: {SAVE_LAUNCHES} to save; to gate at most {GATE_LAUNCHES}, until it is decided",
    )
    group.addoption("--llmperf-repeats", metavar="N", type=int, default=REPEATS, help=f"repeats per launch ({REPEATS})")
    group.addoption("--llmperf-baselines", metavar="DIR", default=None, help="baselines (baselines/ under the rootdir)")
    group.addoption("--llmperf-report", metavar="DIR", default=None, help="reports (reports/<run id>/)")
    group.addoption(
        "--llmperf-inconclusive",
        choices=("fail", "warn"),
        default="fail",
        help="what an inconclusive verdict does to its test (fail)",
    )
    for name, kind, text in _INI:
        parser.addini(name, text, type=kind, default=None)  # type: ignore[arg-type]  # the literals are pytest's own


@dataclass(frozen=True)
class SessionOptions:
    """What holds for the whole session.

    Attributes:
        engine: ``--llmperf-engine`` as written.
        model: ``--llmperf-model``, or ``None`` for the default of the engine at hand.
        gpu_clock_mhz: ``--gpu-clock``.
        gpu_memory_clock_mhz: ``--gpu-memory-clock``.
        gpu_clock_mode: ``--gpu-clock-mode``.
        save: Whether to store baselines instead of gating.
        launches: Engine launches per test; the most of them when it is gated.
        measure_launches: Those of a test that only measures.
        repeats: Repeats per launch.
        baselines: The folder of the baselines.
        report: The folder of the report, or ``None`` for ``reports/<run id>/``.
        inconclusive: ``"fail"`` or ``"warn"``.
        read_timeout: Seconds.
        connect_timeout: Seconds.
        tolerance: By metric, from the ini file; the key ``"*"`` holds for all.
        budget: Likewise, for the change since the anchor.
        baseline_max_age: Days after which a baseline is old; 0 for never.
        outputs_tolerance: How far answers may differ, by name, from the ini file.
        allowed_failures: Per launch.
        in_ci: Whether this is a CI run, by the variable ``CI``.
    """

    engine: str
    model: str | None
    gpu_clock_mhz: int | None
    gpu_memory_clock_mhz: int | None
    gpu_clock_mode: str
    save: bool
    launches: int
    measure_launches: int
    repeats: int
    baselines: Path
    report: Path | None
    inconclusive: str
    read_timeout: float
    connect_timeout: float
    tolerance: Mapping[str, float] = field(default_factory=dict)
    budget: Mapping[str, float] = field(default_factory=dict)
    baseline_max_age: float = MAX_AGE_DAYS
    outputs_tolerance: Mapping[str, float] = field(default_factory=dict)
    allowed_failures: int = 0
    in_ci: bool = False

    @classmethod
    def from_config(cls, config: pytest.Config) -> SessionOptions:
        """Read command line and ini file; the command line wins.

        Raises:
            OptionError: a value is out of range or does not parse; names the option.
        """
        save = bool(config.getoption("--llmperf-save"))
        launches = config.getoption("--llmperf-launches")
        repeats = config.getoption("--llmperf-repeats")
        for name, value in (("--llmperf-launches", launches), ("--llmperf-repeats", repeats)):
            if value is not None and value < 1:
                raise OptionError(f"{name} is a whole number of at least 1, not {value}.")
        clocks = {name: config.getoption(name) for name in ("--gpu-clock", "--gpu-memory-clock")}
        for name, clock in clocks.items():
            if clock is not None and clock < 1:
                raise OptionError(f"{name} is a frequency in MHz, not {clock}.")
        for name in ("--llmperf-engine", "--llmperf-model", "--llmperf-baselines", "--llmperf-report"):
            if config.getoption(name) == "":
                raise OptionError(f"{name} was given without a value.", remedy=f"Write {name}=VALUE, or leave it out.")
        baselines = config.getoption("--llmperf-baselines") or config.getini("llmperf_baselines") or "baselines"
        report = config.getoption("--llmperf-report")
        invoked_in = config.invocation_params.dir
        from_command_line = config.getoption("--llmperf-baselines") is not None
        return cls(
            engine=config.getoption("--llmperf-engine") or config.getini("llmperf_engine") or "auto",
            model=config.getoption("--llmperf-model") or config.getini("llmperf_model") or None,
            gpu_clock_mhz=clocks["--gpu-clock"],
            gpu_memory_clock_mhz=clocks["--gpu-memory-clock"],
            gpu_clock_mode=config.getoption("--gpu-clock-mode"),
            save=save,
            launches=launches or (SAVE_LAUNCHES if save else GATE_LAUNCHES),
            measure_launches=launches or MEASURE_LAUNCHES,
            repeats=repeats,
            baselines=(invoked_in if from_command_line else config.rootpath) / baselines,
            report=None if report is None else invoked_in / report,
            inconclusive=config.getoption("--llmperf-inconclusive"),
            read_timeout=_ini_number(config, "llmperf_read_timeout", 120, at_most=_LONGEST_TIMEOUT),
            connect_timeout=_ini_number(config, "llmperf_connect_timeout", 30, at_most=_LONGEST_TIMEOUT),
            tolerance=_ini_tolerance(config, "llmperf_tolerance"),
            budget=_ini_tolerance(config, "llmperf_budget"),
            baseline_max_age=_ini_number(config, "llmperf_baseline_max_age", MAX_AGE_DAYS, whole=True),
            outputs_tolerance=_ini_outputs_tolerance(config.getini("llmperf_outputs_tolerance") or []),
            allowed_failures=int(_ini_number(config, "llmperf_allowed_failures", 0, whole=True)),
            in_ci=os.environ.get("CI", "").lower() not in ("", "0", "false"),
        )


@dataclass(frozen=True)
class MarkerOptions:
    """What one test asks for in ``@pytest.mark.llmperf(...)``.

    Attributes:
        tolerance: By metric; the key ``"*"`` holds for every gated metric.
        model: As ``--llmperf-model``; ``None`` leaves the session's.
        engine: Engine arguments that are part of what the test is.
        outputs: How far answers may differ from the baseline's, by name; ``None`` when they are not to be compared.
    """

    tolerance: Mapping[str, float] = field(default_factory=dict)
    model: str | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, float] | None = field(default_factory=dict)

    @classmethod
    def from_node(cls, node: pytest.Item) -> MarkerOptions:
        """Merge the markers of a test, the closest winning argument by argument.

        Raises:
            OptionError: an argument is unknown or of the wrong type; names the test.
        """
        merged: dict[str, Any] = {"tolerance": {}, "model": None, "engine": {}, "outputs": {}}
        for mark in reversed(list(node.iter_markers("llmperf"))):
            where = f"@pytest.mark.llmperf of {node.nodeid}"
            if mark.args:
                raise OptionError(f"{where} takes named arguments only, not {mark.args[0]!r}.")
            if unknown := sorted(set(mark.kwargs) - set(merged)):
                names = f"argument{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}"
                raise OptionError(f"{where} has no {names}.", remedy=f"It takes: {', '.join(merged)}.")
            model = mark.kwargs.get("model", merged["model"])
            if model is not None and not isinstance(model, str):
                raise OptionError(f"{where}: model is a name or a path, not {model!r}.")
            engine = mark.kwargs.get("engine", {})
            if not isinstance(engine, Mapping) or not all(isinstance(k, str) for k in engine):
                raise OptionError(f"{where}: engine is a mapping of engine arguments, not {engine!r}.")
            tolerance = _tolerances(mark.kwargs.get("tolerance"), where)
            # One tolerance for all metrics leaves nothing of the markers farther away.
            merged["tolerance"] = tolerance if "*" in tolerance else merged["tolerance"] | tolerance
            merged["model"] = model
            merged["engine"] |= engine
            if "outputs" in mark.kwargs:
                outputs = _marked_outputs(mark.kwargs["outputs"], where)
                merged["outputs"] = None if outputs is None else {**(merged["outputs"] or {}), **outputs}
        return cls(**merged)


def tolerances(session: SessionOptions, marker: MarkerOptions) -> dict[str, float]:
    """The gated metrics of a test with the tolerance of each: defaults, then ini file, then marker."""
    result: dict[str, float] = {}
    named = [*GATED, *(n for source in (session.tolerance, marker.tolerance) for n in source if n != "*")]
    for name in dict.fromkeys(named):
        for source in (marker.tolerance, session.tolerance):
            if name in source or "*" in source:
                result[name] = source.get(name, source.get("*", OTHER_TOLERANCE))
                break
        else:
            result[name] = DEFAULT_TOLERANCE.get(name, OTHER_TOLERANCE)
    return result


def tolerance_for_all(session: SessionOptions, marker: MarkerOptions) -> float | None:
    """The one tolerance that was given for all gated metrics; ``None`` without one."""
    return marker.tolerance.get("*", session.tolerance.get("*"))


def budgets(session: SessionOptions, tolerances: Mapping[str, float]) -> dict[str, float]:
    """How far every gated metric may be worse than its anchor: what the ini file says, else twice its tolerance.

    Args:
        session: Holds the ini file's budgets.
        tolerances: Of the gated metrics of a test.
    """
    for_all = session.budget.get("*")
    return {
        name: session.budget.get(name, BUDGET_TOLERANCES * tolerance if for_all is None else for_all)
        for name, tolerance in tolerances.items()
    }


def outputs_tolerances(session: SessionOptions, marker: MarkerOptions) -> dict[str, float] | None:
    """How far a test's answers may differ: defaults, then ini file, then marker; ``None``: they are not compared."""
    if marker.outputs is None:
        return None
    return {**DEFAULT_OUTPUTS_TOLERANCE, **session.outputs_tolerance, **marker.outputs}


def parse_tolerance(value: Any, where: str) -> float:
    """``"3%"``, ``"0.03"`` or ``0.03`` as 0.03.

    Raises:
        OptionError: it is no finite number of at least 0.
    """
    number: float = math.nan
    if isinstance(value, str):
        text = value.strip()
        try:
            number = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            number = math.nan
    elif isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):  # a whole number beyond what a float can hold
            number = float(value)
    if 1 <= number < math.inf and not (isinstance(value, str) and value.strip().endswith("%")):
        raise OptionError(
            f"{where}: {value!r} would be {number:.0%}.", remedy=f"Write '{number:g}%', or {number / 100:g}."
        )
    if not math.isfinite(number) or number < 0:
        raise OptionError(f"{where}: a tolerance is like '3%' or 0.03, not {value!r}.")
    return number


def _tolerances(value: Any, where: str) -> dict[str, float]:
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return {name: parse_tolerance(v, f"{where}: tolerance of {name}") for name, v in value.items()}
    return {"*": parse_tolerance(value, where)}


def _marked_outputs(value: Any, where: str) -> dict[str, float] | None:
    if value is False:
        return None
    if value is True or value is None:
        return {}
    if isinstance(value, Mapping):
        return {name: _outputs_tolerance(name, given, where) for name, given in value.items()}
    raise OptionError(f"{where}: outputs is False, or a mapping of tolerances, not {value!r}.")


def _outputs_tolerance(name: Any, value: Any, where: str) -> float:
    """A tolerance of ``token_agreement``, which is a share, or of ``logprob_difference``, in nat.

    Raises:
        OptionError: there is no such figure, or the value is none for it.
    """
    if name == "token_agreement":
        share = parse_tolerance(value, f"{where}: tolerance of {name}")
        if share > 1:
            raise OptionError(
                f"{where}: tolerance of {name}: more than all tokens cannot differ, and {value!r} says so."
            )
        return share
    if name != "logprob_difference":
        raise OptionError(
            f"{where} names the tolerance {name!r} of outputs, which does not exist.",
            remedy=f"Tolerances of outputs are: {', '.join(DEFAULT_OUTPUTS_TOLERANCE)}.",
        )
    number = math.nan
    if isinstance(value, str):
        with suppress(ValueError):
            number = float(value.strip().removesuffix("nat"))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        with suppress(OverflowError):
            number = float(value)
    if not math.isfinite(number) or number < 0:
        raise OptionError(f"{where}: the tolerance of {name} is in nat, like 0.1, and cannot be {value!r}.")
    return number


def _ini_outputs_tolerance(lines: list[str]) -> dict[str, float]:
    where = "llmperf_outputs_tolerance in the ini file"
    result = {}
    for line in lines:
        name, _, value = line.partition(":")
        result[name.strip()] = _outputs_tolerance(name.strip(), value.strip(), where)
    return result


def _ini_tolerance(config: pytest.Config, option: str) -> dict[str, float]:
    result = {}
    for line in config.getini(option) or []:
        name, colon, value = line.rpartition(":")
        result[name.strip() if colon else "*"] = parse_tolerance(value.strip(), f"{option} in the ini file")
    return result


def _ini_number(
    config: pytest.Config, name: str, default: float, *, whole: bool = False, at_most: float = math.inf
) -> float:
    text = config.getini(name)
    if text in (None, ""):
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or (number < 0 or number != int(number) if whole else number <= 0):
        kind = "whole number of at least 0" if whole else "number above 0"
        raise OptionError(f"{name} in the ini file is a {kind}, not {text!r}.")
    if number > at_most:
        raise OptionError(f"{name} in the ini file is at most {at_most:.0f}, not {text!r}.")
    return number
