"""The products that are simulated: what their sensors do, and how much power they draw.

    power = idle + loaded + memory share x dram
          + (memory share x memory + compute share x compute) x f/fmax x (V(f)/Vmax)^2

and never above the power limit. ``idle`` and ``loaded`` are there whatever the board does: a longer run pays them
longer. What the SMs do for it goes with V^2 f, what the memory itself draws does not. The voltage is flat up to a knee
and rises from there in a straight line. The memory share is of the peak bandwidth, the compute share of the FLOPs that
the board can do at its present clock.

The figures of the H200 were fitted to one board (see :data:`PRODUCTS`); those of the others are guesses from the data
sheets' power limits, but for what is marked. None of them says anything about a real board.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from pytest_llmperf.arithmetic import Hardware

__all__ = ["PRODUCTS", "Product"]

_MS = 1_000_000
_MIB = 2**20


@dataclass(frozen=True)
class Product:
    """One product, as it is simulated.

    Attributes:
        name: As its driver gives it.
        compute_capability: CUDA's.
        memory_bytes: Of its memory, as its driver gives it.
        sm_clocks_mhz: That it can be locked at, ascending.
        memory_clocks_mhz: Likewise; a single one cannot be locked.
        idle_mhz: The SM clock while nothing is loaded, unless it is locked.
        idle_w: Power with nothing loaded.
        loaded_w: More with a model loaded.
        dram_w: More at full bandwidth, whatever the SM clock.
        memory_w: More at full bandwidth and highest clock, for the SMs.
        compute_w: More at full FLOPs and highest clock.
        voltage_floor: Lowest voltage over the highest.
        voltage_knee_mhz: Up to where it is the lowest.
        counter_period_ns: From one step of the energy counter to the next.
        power_period_ns: From one change of the power reading to the next.
        power_window_ns: What a power reading is the mean of.
        counter_read_ns: How long reading the counter takes.
        heating_k_per_w: Steady temperature above ambient for each watt.
        slowdown_c: Where the hardware would slow down; it does not.
        has_activity: Whether NVML reads its performance counters.
    """

    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    sm_clocks_mhz: tuple[int, ...]
    memory_clocks_mhz: tuple[int, ...]
    idle_mhz: int
    idle_w: float
    loaded_w: float
    dram_w: float
    memory_w: float
    compute_w: float
    voltage_floor: float
    voltage_knee_mhz: int
    counter_period_ns: int
    power_period_ns: int
    power_window_ns: int
    counter_read_ns: int
    heating_k_per_w: float
    slowdown_c: int
    has_activity: bool

    @property
    def power_limit_w(self) -> float:
        """The data sheet's default limit in watts."""
        limit = Hardware.named(self.name).power_limit_w
        assert limit is not None
        return limit

    @property
    def max_sm_clock_mhz(self) -> int:
        """The highest SM clock in MHz, at which it runs free."""
        return self.sm_clocks_mhz[-1]

    @property
    def max_memory_clock_mhz(self) -> int:
        """The highest memory clock in MHz."""
        return self.memory_clocks_mhz[-1]

    def voltage(self, sm_mhz: float) -> float:
        """The voltage over the highest."""
        above = max(0.0, sm_mhz - self.voltage_knee_mhz) / (self.max_sm_clock_mhz - self.voltage_knee_mhz)
        return self.voltage_floor + (1 - self.voltage_floor) * above

    def watts(self, sm_mhz: float, *, loaded: bool, memory: float = 0.0, compute: float = 0.0) -> float:
        """Power in watts without a limit.

        Args:
            sm_mhz: The SM clock in MHz.
            loaded: Whether a model is.
            memory: Share of the peak bandwidth in use.
            compute: Share of the FLOPs in use that this clock allows.
        """
        switching = sm_mhz / self.max_sm_clock_mhz * self.voltage(sm_mhz) ** 2
        still = self.idle_w + loaded * self.loaded_w + memory * self.dram_w
        return still + (memory * self.memory_w + compute * self.compute_w) * switching

    def clock_within(self, limit_w: float, sm_mhz: int, *, loaded: bool, memory: float, compute: float) -> int:
        """The highest clock in MHz, of those up to ``sm_mhz``, that draws no more than ``limit_w``; else the lowest."""

        def draw(clock: int) -> float:
            return self.watts(clock, loaded=loaded, memory=memory, compute=compute)

        within = self.sm_clocks_mhz[: bisect_right(self.sm_clocks_mhz, sm_mhz)]
        return within[max(0, bisect_right(within, limit_w, key=draw) - 1)]


#: By the short name that the simulated engines use. "reference" is a run of Mistral-7B on one H200 with 512 + 256
#: tokens at batch 1, 4, 16 and 64: 456, 474, 538 and 672 W.
PRODUCTS = {
    "v100": Product(
        name="Tesla V100-SXM2-32GB",
        compute_capability=(7, 0),
        memory_bytes=32768 * _MIB,  # typical reading of nvidia-smi
        sm_clocks_mhz=tuple(int(135 + 7.5 * step) for step in range(187)),  # nvidia-smi -q -d SUPPORTED_CLOCKS: to 1530
        memory_clocks_mhz=(877,),  # the same
        idle_mhz=135,  # guess
        idle_w=23,  # read on a board
        loaded_w=17,  # guess
        dram_w=35,  # guess
        memory_w=190,  # guess
        compute_w=330,  # guess
        voltage_floor=0.68,  # guess
        voltage_knee_mhz=900,  # guess: where tokens per joule were found to peak
        counter_period_ns=20 * _MS,  # published measurements of the sensors by generation
        power_period_ns=20 * _MS,  # the same
        power_window_ns=10 * _MS,  # the same
        counter_read_ns=2 * _MS,  # guess
        heating_k_per_w=0.1,  # guess
        slowdown_c=87,  # typical reading of nvidia-smi
        has_activity=False,  # NVML: Hopper and newer
    ),
    "a100": Product(
        name="NVIDIA A100-SXM4-80GB",
        compute_capability=(8, 0),
        memory_bytes=81920 * _MIB,  # typical reading of nvidia-smi
        sm_clocks_mhz=tuple(range(210, 1411, 15)),  # nvidia-smi -q -d SUPPORTED_CLOCKS
        memory_clocks_mhz=(1593,),  # the same
        idle_mhz=210,  # guess
        idle_w=55,  # guess
        loaded_w=20,  # guess
        dram_w=60,  # guess
        memory_w=220,  # guess
        compute_w=500,  # guess
        voltage_floor=0.72,  # guess
        voltage_knee_mhz=900,  # guess
        counter_period_ns=100 * _MS,  # published measurements of the sensors by generation
        power_period_ns=100 * _MS,  # the same
        power_window_ns=25 * _MS,  # the same
        counter_read_ns=2 * _MS,  # guess
        heating_k_per_w=0.08,  # guess
        slowdown_c=92,  # typical reading of nvidia-smi
        has_activity=False,  # NVML: Hopper and newer
    ),
    "h100": Product(
        name="NVIDIA H100 80GB HBM3",
        compute_capability=(9, 0),
        memory_bytes=81559 * _MIB,  # typical reading of nvidia-smi
        sm_clocks_mhz=tuple(range(210, 1981, 15)),  # nvidia-smi -q -d SUPPORTED_CLOCKS
        memory_clocks_mhz=(1593, 2619),  # the same
        idle_mhz=345,  # guess
        idle_w=70,  # guess
        loaded_w=45,  # guess: as on the H200
        dram_w=110,  # guess: the H200's by bandwidth
        memory_w=375,  # guess: as on the H200
        compute_w=1300,  # guess: as on the H200
        voltage_floor=0.72,  # guess
        voltage_knee_mhz=1200,  # guess
        counter_period_ns=100 * _MS,  # published measurements of the sensors by generation
        power_period_ns=100 * _MS,  # the same
        power_window_ns=25 * _MS,  # the same
        counter_read_ns=4_500_000,  # guess: as on the H200
        heating_k_per_w=0.05,  # guess
        slowdown_c=87,  # typical reading of nvidia-smi
        has_activity=True,  # NVML: Hopper and newer
    ),
    "h200": Product(
        name="NVIDIA H200",
        compute_capability=(9, 0),
        memory_bytes=143771 * _MIB,  # typical reading of nvidia-smi
        sm_clocks_mhz=tuple(range(345, 1981, 15)),  # read on a board
        memory_clocks_mhz=(1593, 2619, 3201),  # typical reading of nvidia-smi
        idle_mhz=345,  # guess
        idle_w=79,  # read on a board
        loaded_w=46,  # read on a board: 125 W with a model loaded
        dram_w=150,  # guess: 4 pJ a bit at the peak bandwidth
        memory_w=375,  # fitted to the reference at batch 1, given dram_w
        compute_w=1300,  # fitted to the reference at batch 4 to 64
        voltage_floor=0.72,  # guess
        voltage_knee_mhz=1200,  # guess
        counter_period_ns=100 * _MS,  # read on a board
        power_period_ns=100 * _MS,  # read on a board
        power_window_ns=25 * _MS,  # published measurements of the sensors of the H100
        counter_read_ns=4_500_000,  # read on a board
        heating_k_per_w=0.05,  # guess
        slowdown_c=87,  # typical reading of nvidia-smi
        has_activity=True,  # NVML: Hopper and newer
    ),
}
