from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pytest_llmperf.arithmetic.cli import main, si

from .cases import CONFIGS, EXPECTED

MISTRAL = str(CONFIGS / "mistral-7b-v0.1.json")


def refuse_constant(name):
    raise AssertionError(f"{name} is not JSON")


def run_json(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=refuse_constant)


@pytest.mark.parametrize("name", sorted(EXPECTED))
@pytest.mark.parametrize("gpu", [(), ("--gpu", "NVIDIA H100 80GB HBM3")], ids=["model", "gpu"])
def test_the_table_fits_80_columns(capsys, monkeypatch, name, gpu):
    monkeypatch.chdir(CONFIGS)
    arguments = [f"{name}.json", *gpu, "--batch", "1", "16", "256", "--context", "512", "131072"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert max(len(line) for line in output.splitlines()) <= 80
    assert output.count("batch 256") >= 2


def test_the_table_says_what_matters(capsys):
    assert main([MISTRAL, "--gpu", "h200", "--batch", "1", "--context", "1024"]) == 0
    output = capsys.readouterr().out
    for text in ("7.242 B", "14.48 GB", "131.1 kB", "989.4 TFLOP/s", "2.991 ms", "memory", "batch 206.1"):
        assert text in output


def test_json_is_in_si_units(capsys):
    report = run_json(capsys, MISTRAL, "--gpu", "NVIDIA H200", "--batch", "2", "--context", "1024")
    assert report["total_params"] == 7_241_732_096
    assert report["gpu"]["peak_bandwidth"] == 4.8e12
    row = report["decode"][0]
    assert row["read_bytes"] == 14_221_320_192 + 2 * 134_217_728
    assert row["tpot_s"] == pytest.approx(row["read_bytes"] / 4.8e12)
    assert row["fits"] is True
    assert sum(row["energy_split"].values()) == pytest.approx(1)


def test_measured_peaks_and_a_locked_clock(capsys):
    name = "Tesla V100-SXM2-32GB"
    report = run_json(capsys, MISTRAL, "--gpu", name, "--bandwidth", "722", "--dtype", "float16")
    assert report["critical_batch"]["without_kv"] == pytest.approx(173.1, abs=0.1)
    slow = run_json(capsys, MISTRAL, "--gpu", name, "--sm-clock", "765", "--dtype", "float16")
    assert slow["gpu"]["peak_flops"] == pytest.approx(62.5e12)


def test_serving_options(capsys):
    report = run_json(capsys, MISTRAL, "--quantization", "fp8", "--kv-dtype", "fp8", "--gpus", "2")
    assert report["weight_bytes"] < 0.6 * report["stored_weight_bytes"]
    assert report["kv_bytes_per_token"] == 65_536


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no/such/model"], "config.json"),
        ([MISTRAL, "--gpu", "NVIDIA H2000"], "DataSheet(("),
        ([MISTRAL, "--kv-dtype", "odd"], "'odd'"),
        ([MISTRAL, "--quantization", "odd"], "'odd'"),
    ],
)
def test_what_is_not_known_goes_to_standard_error(capsys, arguments, message):
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err


@pytest.mark.parametrize(
    "arguments", [[], [MISTRAL, "--batch", "0"], [MISTRAL, "--context", "x"], [MISTRAL, "--bandwidth", "nan"]]
)
def test_wrong_arguments(capsys, arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "B", "0 B"),
        (999, "B", "999 B"),
        (1000, "B", "1 kB"),
        (14483464192, "B", "14.48 GB"),
        (7.2e9, "", "7.2 B"),
        (0.002991, "s", "2.991 ms"),
        (1.5e-8, "s", "0.015 µs"),
        (999999, "B", "1 MB"),
    ],
)
def test_numbers_with_units(value, unit, text):
    assert si(value, unit) == text


def test_importing_is_light():
    code = (
        "import sys; import pytest_llmperf.arithmetic.cli;"
        "heavy = {'pydantic', 'numpy', 'torch', 'transformers', 'scipy', 'jinja2', 'vllm', 'pytest'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
