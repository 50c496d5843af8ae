"""How one weight matrix is stored, and which matrices of a model are stored how."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.structure import Decoder, Linear

Granularity = Literal["tensor", "channel", "group", "block", "flat"]


@dataclass(frozen=True, slots=True)
class Format:
    """How one weight matrix is stored.

    Args:
        weight_bits: Bits of one weight.
        granularity: What shares a scale: the whole matrix, all weights of an output, a group of consecutive
            inputs of an output, a block of inputs and outputs, or a run of the flattened matrix.
        group: Inputs that share a scale (``group``, ``block``), or weights that do (``flat``).
        rows: Outputs that share a scale (``block``).
        scale_bits: Bits of a scale; ``None`` for the model's own dtype.
        zero_bits: Bits of a zero point, of which there are as many as scales.
        scale_group: Scales that share a 32-bit scale of their own, where scales are quantised too.
        tensor_bytes: Bytes of what there is once for the whole matrix.
        input_bytes: Bytes for each input, such as GPTQ's permutation.
        matmul_dtype: What it is multiplied in; ``None`` for the model's own dtype.
    """

    weight_bits: int
    granularity: Granularity
    group: int = 0
    rows: int = 1
    scale_bits: int | None = None
    zero_bits: int = 0
    scale_group: int = 0
    tensor_bytes: int = 0
    input_bytes: int = 0
    matmul_dtype: str | None = None

    def bytes(self, linear: Linear, own_bits: int) -> int:
        """Bytes of one copy of a matrix, without its bias.

        Args:
            linear: The matrix.
            own_bits: Bits of the model's own dtype.
        """
        scales = self._scales(linear)
        scale_bits = own_bits if self.scale_bits is None else self.scale_bits
        return (
            _whole_bytes(linear.weight_params * self.weight_bits)
            + _whole_bytes(scales * scale_bits)
            + _whole_bytes(scales * self.zero_bits)
            + (4 * _ceil(scales, self.scale_group) if self.scale_group else 0)
            + self.tensor_bytes
            + self.input_bytes * linear.inputs
        )

    def _scales(self, linear: Linear) -> int:
        if self.granularity == "tensor":
            return 1
        if self.granularity == "channel":
            return linear.outputs
        if self.granularity == "flat":
            return _ceil(linear.weight_params, self.group)
        return _ceil(linear.inputs, self.group) * _ceil(linear.outputs, self.rows)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


def _whole_bytes(bits: int) -> int:
    return _ceil(bits, 8)


Choose = Callable[[str], Format | None]


@dataclass(frozen=True, slots=True)
class Quantization:
    """A quantisation of a model: which matrices are stored in which format.

    Args:
        method: Its name, as in the config's ``quant_method``.
        choose: The format of a matrix by its full name, or ``None`` when it stays in the model's own dtype.
            Asked only about matrices that engines can quantise: not about routers, nor the input table.
    """

    method: str
    choose: Choose

    def matmul_dtype(self, decoder: Decoder) -> str | None:
        """What most weights of a model are multiplied in, or ``None`` for the model's own dtype."""
        weights: Counter[str | None] = Counter()
        for name, linear in decoder.matrices():
            fmt = None if linear.router else self.choose(name)
            weights[fmt.matmul_dtype if fmt is not None else None] += linear.selected * linear.weight_params
        return weights.most_common(1)[0][0] if weights else None


def is_head(name: str) -> bool:
    """Whether a name is that of an output projection, which most methods leave alone."""
    return name.rsplit(".", 1)[-1] in ("lm_head", "embed_out", "output_layer") or name == "output"


def names_module(entry: str, name: str) -> bool:
    """Whether an entry of a skip list means a module: whole dotted parts of its name."""
    return f".{entry.strip('.')}." in f".{name}."


def unless_skipped(skipped: tuple[str, ...], fmt: Format) -> Choose:
    """One format for all modules but the output projection and those that a list names."""

    def choose(name: str) -> Format | None:
        if is_head(name) or any(names_module(entry, name) for entry in skipped):
            return None
        return fmt

    return choose
