"""The boards that are simulated: parameters in one readable file a board, each with its source.

``boards/<key>.toml`` holds a table for every class below, and in it a line for every attribute::

    memory_w = { value = 375, source = "fitted to ..." }

A figure that nobody measured or fitted says so: its source begins with "guess".
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import Any, TypeVar

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.errors import HardwareError

__all__ = ["BOARDS", "BoardModel", "Compute", "Host", "Links", "Memory", "Power", "Product", "Sensors"]

#: The boards that have a file.
BOARDS = ("v100", "a100", "a100-40gb", "h100", "h200")

_Section = TypeVar("_Section")


@dataclass(frozen=True, slots=True)
class Product:
    """What the board is.

    Attributes:
        name: As its driver gives it; the data sheet's peaks belong to it.
        compute_capability: CUDA's, major and minor.
        memory_bytes: Of its memory, as its driver gives it.
        sm_clocks_mhz: First, last and step of the SM clocks that it can be locked at.
        memory_clocks_mhz: Memory clocks likewise, ascending; a single one cannot be locked.
        idle_sm_clock_mhz: The SM clock while nothing is loaded.
    """

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    sm_clocks_mhz: tuple[float, float, float]
    memory_clocks_mhz: tuple[int, ...]
    idle_sm_clock_mhz: int

    @property
    def supported_sm_clocks_mhz(self) -> tuple[int, ...]:
        """Every SM clock that it can be locked at, in whole MHz as the driver tells them, ascending."""
        first, last, step = self.sm_clocks_mhz
        return tuple(int(first + step * number) for number in range(1 + round((last - first) / step)))


@dataclass(frozen=True, slots=True)
class Memory:
    """What of the peak bandwidth is reached.

    Attributes:
        copy_bandwidth: Of a copy within the board, bytes read and written per second.
        weights_share: Share of the peak at which weights are read.
        cache_share: Share of the peak at which KV caches of 16 bits are read.
        cache_share_8bit: Share of the peak at which KV caches of 8 bits are read.
        knee_mhz: The SM clock below which the bandwidth that is reached falls with it: fewer reads are under way.
    """

    copy_bandwidth: float
    weights_share: float
    cache_share: float
    cache_share_8bit: float
    knee_mhz: float


@dataclass(frozen=True, slots=True)
class Compute:
    """What of the peak FLOPs is reached, and what a step takes beside them.

    Attributes:
        matmul_share: Share of the peak at which large weight matrices are multiplied.
        attention_share: Share of the peak at which a prompt attends to itself.
        blend: How sharply a matrix product turns from memory-bound to compute-bound: its time is the norm of this
            order of the two times; infinity would be the roofline's maximum.
        token_s: Seconds that each token of a step adds for what is neither (norms, activations), for each layer, at the
            highest SM clock.
        head_s: Seconds that each KV head of a decoding sequence adds in each layer, whatever its context.
        sequence_s: Seconds that each sequence of a step adds: its output projection is sampled from.
        layer_s: Seconds that each layer adds to a step: its kernels begin and end one after the other.
        step_s: Seconds that each step adds.
    """

    matmul_share: float
    attention_share: float
    blend: float
    token_s: float
    head_s: float
    sequence_s: float
    layer_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Host:
    """What the computer around the board adds.

    Attributes:
        submit_s: Seconds from one request of several submitted together to the next.
        ingest_s: Seconds from a request's submission until the engine has it.
        deliver_s: Seconds from the end of a step until the client has its tokens.
        prepare_s: Seconds of each launch before the GPU can begin.
        graph_launch_s: Seconds to prepare and launch a step of decodes alone, which is one CUDA graph.
        sequence_launch_s: Seconds that each sequence of a step adds to that.
        piecewise_launch_s: Seconds for each layer to launch a step with prompt tokens in it that has few enough tokens
            for a CUDA graph between one attention and the next.
        layer_launch_s: Seconds for each layer to launch a larger step, compiled.
        mixed_launch_s: Seconds more for each layer of a step with prompts and decodes in it, whose attentions are
            launched one after the other.
        eager_layer_launch_s: Seconds for each layer to launch any step of an engine that neither compiles nor captures.
    """

    submit_s: float
    ingest_s: float
    deliver_s: float
    prepare_s: float
    graph_launch_s: float
    sequence_launch_s: float
    piecewise_launch_s: float
    layer_launch_s: float
    mixed_launch_s: float
    eager_layer_launch_s: float


@dataclass(frozen=True, slots=True)
class Links:
    """What joins the board to its like.

    Attributes:
        latency_s: Seconds of an all-reduce of next to nothing.
        bandwidth: Bytes per second that a GPU sends in a large one, in each direction.
    """

    latency_s: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Power:
    """What it draws.

    Attributes:
        idle_w: With nothing loaded.
        context_w: More with a CUDA context and nothing loaded: the clocks no longer fall.
        loaded_w: More with a model loaded, its context included.
        busy_w: More while a kernel runs, at the highest clock, whatever it does.
        dram_w: More at full bandwidth, whatever the SM clock.
        memory_w: More at full bandwidth and highest clock, for the SMs.
        compute_w: More at full FLOPs and highest clock.
        voltage_floor: Lowest voltage over the highest.
        voltage_knee_mhz: Up to where it is the lowest; from there it rises in a straight line.
        limit_s: Seconds over which the power limit takes the mean.
    """

    idle_w: float
    context_w: float
    loaded_w: float
    busy_w: float
    dram_w: float
    memory_w: float
    compute_w: float
    voltage_floor: float
    voltage_knee_mhz: float
    limit_s: float


@dataclass(frozen=True, slots=True)
class Sensors:
    """What its sensors do.

    Attributes:
        counter_period_s: From one step of the energy counter to the next.
        power_period_s: From one change of the power reading to the next.
        power_window_s: What a power reading is the mean of.
        counter_read_s: How long reading the counter takes.
        heating_k_per_w: Steady temperature above ambient for each watt.
        slowdown_c: Where the hardware would slow down; it does not.
        has_activity: Whether NVML reads its performance counters.
    """

    counter_period_s: float
    power_period_s: float
    power_window_s: float
    counter_read_s: float
    heating_k_per_w: float
    slowdown_c: float
    has_activity: bool


@dataclass(frozen=True, slots=True)
class BoardModel:
    """One board: all of its parameters.

    Attributes:
        key: Its short name: the engine ``sim:<key>`` runs on it.
        sources: Where each figure comes from, by ``"section.attribute"``.
    """

    key: str
    product: Product
    memory: Memory
    compute: Compute
    host: Host
    links: Links
    power: Power
    sensors: Sensors
    sources: dict[str, str]

    @classmethod
    def named(cls, key: str) -> BoardModel:
        """The board of a file.

        Raises:
            HardwareError: There is no such file, or what stands in it is not complete.
        """
        return _read(key)

    @property
    def hardware(self) -> Hardware:
        """The data sheet's peaks."""
        return Hardware.named(self.product.name)


@cache
def _read(key: str) -> BoardModel:
    if key not in BOARDS:
        raise HardwareError(f"No board {key!r} can be simulated.", remedy=f"Use one of: {', '.join(BOARDS)}.")
    name = f"{key}.toml"
    return board_of(key, tomllib.loads((files(__package__) / "boards" / name).read_text("utf-8")))


def board_of(key: str, tables: dict[str, dict[str, Any]]) -> BoardModel:
    """The board that a file's tables describe.

    Raises:
        HardwareError: A table, a line or a source is missing, or is unknown.
    """
    sections: dict[str, type[Any]] = {
        "product": Product, "memory": Memory, "compute": Compute, "host": Host, "links": Links, "power": Power,
        "sensors": Sensors,
    }  # fmt: skip
    _expect(key, "", set(sections), set(tables))
    sources: dict[str, str] = {}
    read: dict[str, Any] = {n: _section(key, n, kind, tables[n], sources) for n, kind in sections.items()}
    return BoardModel(key=key, sources=sources, **read)


def _section(key: str, section: str, kind: type[_Section], table: dict[str, Any], sources: dict[str, str]) -> _Section:
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    _expect(key, section + ".", set(names), set(table))
    values: dict[str, Any] = {}
    for name in names:
        line = table[name]
        if not isinstance(line, dict) or set(line) != {"value", "source"} or not str(line["source"]).strip():
            raise HardwareError(f"boards/{key}.toml: {section}.{name} is {{ value = ..., source = ... }}.")
        value = line["value"]
        values[name] = tuple(value) if isinstance(value, list) else value
        if (wrong := _wrong(section, name, kind, value)) is not None:
            raise HardwareError(f"boards/{key}.toml: {section}.{name} is {wrong}, not {value!r}.")
        sources[f"{section}.{name}"] = line["source"]
    return kind(**values)


#: Quantities that may be 0; all others are above.
_MAY_BE_ZERO = re.compile(r".*_(s|w)")


def _wrong(section: str, name: str, kind: type[Any], value: Any) -> str | None:
    """What a value should be and is not; ``None`` when all is well."""
    wanted = kind.__annotations__[name]
    if wanted == "str":
        return None if isinstance(value, str) and value else "a name"
    if wanted == "bool":
        return None if isinstance(value, bool) else "true or false"
    numbers = value if wanted.startswith("tuple") and isinstance(value, list) else [value]
    least = 0 if section in ("compute", "host", "links", "power") and _MAY_BE_ZERO.fullmatch(name) else 1e-300
    if wanted.startswith("tuple") and name != "compute_capability":
        ok = isinstance(value, list) and numbers and all(map(_is_positive, numbers))
        return None if ok and (name != "sm_clocks_mhz" or len(numbers) == 3) else "a list of numbers above 0"
    if name == "compute_capability":
        return None if isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) else "two numbers"
    if not _is_number(value) or value < least:
        return "a number of at least 0" if least == 0 else "a number above 0"
    if (name.endswith("_share") and value > 1) or (name == "voltage_floor" and value > 1):
        return "a share of at most 1"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_number(value) and value > 0


def _expect(key: str, prefix: str, wanted: set[str], found: set[str]) -> None:
    wrong = [("misses", wanted - found), ("does not know", found - wanted)]
    said = [f"{what} {', '.join(prefix + name for name in sorted(names))}" for what, names in wrong if names]
    if said:
        raise HardwareError(f"boards/{key}.toml {' and '.join(said)}.")
