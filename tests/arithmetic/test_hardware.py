from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmperf.arithmetic import Hardware
from pytest_llmperf.arithmetic.gpus import DATA_SHEETS
from pytest_llmperf.errors import HardwareError

NAMES = [name for sheet in DATA_SHEETS for name in sheet.names]


@pytest.mark.parametrize(
    ("name", "tflops", "bandwidth", "memory", "watts"),
    [
        ("Tesla V100-SXM2-16GB", 125, 900e9, 16e9, 300),
        ("Tesla V100-SXM2-32GB", 125, 900e9, 32e9, 300),
        ("Tesla V100-PCIE-16GB", 112, 900e9, 16e9, 250),
        ("Tesla T4", 65, 320e9, 16e9, 70),
        ("NVIDIA A10", 125, 600e9, 24e9, 150),
        ("NVIDIA A100-SXM4-40GB", 312, 1555e9, 40e9, 400),
        ("NVIDIA A100-PCIE-40GB", 312, 1555e9, 40e9, 250),
        ("NVIDIA A100-SXM4-80GB", 312, 2039e9, 80e9, 400),
        ("NVIDIA A100 80GB PCIe", 312, 1935e9, 80e9, 300),
        ("NVIDIA L4", 121, 300e9, 24e9, 72),
        ("NVIDIA L40S", 362.05, 864e9, 48e9, 350),
        ("NVIDIA H100 PCIe", 756, 2e12, 80e9, 350),
        ("NVIDIA H100 80GB HBM3", 989.4, 3.35e12, 80e9, 700),
        ("NVIDIA H100 NVL", 835.5, 3.9e12, 94e9, 400),
        ("NVIDIA H200", 989.4, 4.8e12, 141e9, 700),
        ("NVIDIA GH200 480GB", 989.4, 4e12, 96e9, 1000),
        ("NVIDIA B200", 2250, 8e12, 180e9, 1000),
        ("NVIDIA GeForce RTX 3090", 71, 936e9, 24e9, 350),
        ("NVIDIA GeForce RTX 4090", 165.2, 1008e9, 24e9, 450),
        ("NVIDIA GeForce RTX 5090", 209.5, 1792e9, 32e9, 575),
        ("AMD Instinct MI300X", 1307.4, 5.325e12, 192e9, 750),
    ],
)
def test_data_sheets(name, tflops, bandwidth, memory, watts):
    gpu = Hardware.named(name)
    assert gpu.name == name
    assert gpu.peak_flops("float16") == tflops * 1e12
    assert gpu.peak_bandwidth == bandwidth
    assert gpu.memory_bytes == memory
    assert gpu.power_limit_w == watts
    assert gpu.source


def test_no_name_is_twice_in_the_table():
    assert len(NAMES) == len(set(NAMES))


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GeForce RTX 5090 D",
        "NVIDIA A10G",
        "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
        "GRID A100-40C",
        "NVIDIA A100X",
        "NVIDIA A800-SXM4-80GB",
        "NVIDIA H100",
        "NVIDIA H100 80GB HBM2e",
        "NVIDIA H800",
        "NVIDIA H20",
        "NVIDIA H200 141GB",
        "nvidia h200",
        " NVIDIA H200",
        "H200",
        "NVIDIA L40",
        "NVIDIA GB200",
        "",
        "x" * 10_000,
    ],
)
def test_another_product_is_not_matched(name):
    with pytest.raises(HardwareError) as caught:
        Hardware.named(name)
    assert "DataSheet((" in str(caught.value)
    assert "gpus.py" in str(caught.value)
    assert len(str(caught.value)) < 800


def test_machine_balance_of_the_v100():
    gpu = Hardware.named("Tesla V100-SXM2-32GB")
    assert round(gpu.machine_balance("float16")) == 139
    assert round(gpu.machine_balance("fp16", bandwidth=722e9)) == 173
    assert round(gpu.with_measured(bandwidth=722e9).machine_balance("half")) == 173


@pytest.mark.parametrize("name", ["Tesla V100-SXM2-32GB", "Tesla T4"])
def test_a_rate_that_a_gpu_has_not_is_an_error(name):
    for dtype in ("bfloat16", "fp8"):
        with pytest.raises(HardwareError, match=dtype):
            Hardware.named(name).peak_flops(dtype)


def test_an_unknown_dtype_is_an_error():
    with pytest.raises(HardwareError, match="'bf17'"):
        Hardware.named("NVIDIA H200").peak_flops("bf17")


@pytest.mark.parametrize("name", NAMES)
def test_rates_are_dense_and_in_order(name):
    gpu = Hardware.named(name)
    assert gpu.flops["float16"] >= gpu.flops["float32"]
    if "float8" in gpu.flops:
        assert gpu.flops["float8"] == pytest.approx(2 * gpu.flops["float16"], rel=0.03)
    if "bfloat16" in gpu.flops:
        assert gpu.flops["bfloat16"] == gpu.flops["float16"]


# Multiply-adds of the tensor cores of a multiprocessor in a clock, 16 bits in, 32 bits out: from the
# architecture whitepapers. With the number of multiprocessors and the clock they give the data sheet's rate.
@pytest.mark.parametrize(
    ("name", "multiprocessors", "multiply_adds"),
    [
        ("Tesla V100-SXM2-32GB", 80, 512),
        ("Tesla V100-PCIE-16GB", 80, 512),
        ("Tesla T4", 40, 512),
        ("NVIDIA A10", 72, 512),
        ("NVIDIA A100-SXM4-80GB", 108, 1024),
        ("NVIDIA H100 80GB HBM3", 132, 2048),
        ("NVIDIA H100 PCIe", 114, 2048),
        ("NVIDIA H100 NVL", 132, 2048),
        ("NVIDIA H200", 132, 2048),
        ("NVIDIA B200", 148, 4096),
        ("NVIDIA L4", 58, 512),
        ("NVIDIA L40S", 142, 512),
        ("NVIDIA GeForce RTX 3090", 82, 256),
        ("NVIDIA GeForce RTX 4090", 128, 256),
        ("NVIDIA GeForce RTX 5090", 170, 256),
        ("AMD Instinct MI300X", 304, 1024),
    ],
)
def test_rate_and_clock_belong_together(name, multiprocessors, multiply_adds):
    gpu = Hardware.named(name)
    assert gpu.peak_flops("float16") == pytest.approx(2 * multiprocessors * multiply_adds * gpu.sm_clock_hz, rel=0.015)


@given(st.sampled_from(NAMES), st.floats(1e8, 3e9))
def test_flops_scale_with_the_clock_and_bandwidth_does_not(name, clock):
    gpu = Hardware.named(name)
    assert gpu.peak_flops("float16", sm_clock_hz=clock) == pytest.approx(
        gpu.peak_flops("float16") * clock / gpu.sm_clock_hz
    )
    assert gpu.machine_balance("float16", sm_clock_hz=clock) == pytest.approx(
        gpu.peak_flops("float16", sm_clock_hz=clock) / gpu.peak_bandwidth
    )


def test_measured_peaks_take_the_place_of_those_measured_only():
    gpu = Hardware.named("NVIDIA H200")
    measured = gpu.with_measured(bandwidth=4.27e12, flops={"bf16": 700e12}, sm_clock_hz=1.5e9)
    assert measured.peak_bandwidth == 4.27e12
    assert measured.peak_flops("bfloat16", sm_clock_hz=1.5e9) == pytest.approx(700e12)
    assert measured.peak_flops("fp8") == gpu.peak_flops("fp8")
    assert "measured" in measured.source
    assert gpu.peak_bandwidth == 4.8e12


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_measured_peaks_must_make_sense(value):
    gpu = Hardware.named("NVIDIA H200")
    for measured in (
        {"bandwidth": value},
        {"flops": {"bfloat16": value}},
        {"flops": {"bf16": 1.0}, "sm_clock_hz": value},
    ):
        with pytest.raises(HardwareError):
            gpu.with_measured(**measured)
    with pytest.raises(HardwareError):
        gpu.peak_flops("bfloat16", sm_clock_hz=value)
    with pytest.raises(HardwareError):
        gpu.machine_balance("bfloat16", value)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("h200", "NVIDIA H200"),
        ("nvidia h200", "NVIDIA H200"),
        ("H200 nvl", "NVIDIA H200 NVL"),
        ("l40S", "NVIDIA L40S"),
        ("t4", "Tesla T4"),
        ("a100 sxm4 80gb", "NVIDIA A100-SXM4-80GB"),
        ("v100s", "Tesla V100S-PCIE-32GB"),
        ("A100-SXM4-40GB", "A100-SXM4-40GB"),  # as a driver says it
    ],
)
def test_a_short_name_is_enough(typed, meant):
    assert Hardware.matching(typed) == Hardware.named(meant)


def test_a_short_name_of_several_lists_them():
    with pytest.raises(HardwareError) as raised:
        Hardware.matching("h100")
    assert all(
        repr(name) in str(raised.value) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL")
    )
    assert "H200" not in str(raised.value)


@pytest.mark.parametrize("typed", ["", "nvidia", "h20", "100", "h200 ti"])
def test_a_name_is_not_taken_for_a_longer_one(typed):
    with pytest.raises(HardwareError, match="not known"):
        Hardware.matching(typed)


def test_a_driver_is_taken_at_its_word():
    with pytest.raises(HardwareError, match="not known"):
        Hardware.named("h200")
