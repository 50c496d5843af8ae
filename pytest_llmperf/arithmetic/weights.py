"""Bytes of a model's weights: as stored, and as one step of an engine reads them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_llmperf.arithmetic.structure import Decoder, Linear, expected_distinct_experts

if TYPE_CHECKING:
    from pytest_llmperf.arithmetic.quantization import Format, Quantization


@dataclass(frozen=True, slots=True)
class Weights:
    """A model's weights in one way of storing them.

    Args:
        decoder: The model.
        quantization: How matrices are quantised, or ``None``.
        bits: Bits of an element of everything else.
    """

    decoder: Decoder
    quantization: Quantization | None
    bits: int

    def format(self, name: str, linear: Linear) -> Format | None:
        """How a matrix is quantised, if it is."""
        if self.quantization is None or linear.router:
            return None
        return self.quantization.choose(name)

    @property
    def head_format(self) -> Format | None:
        """How the output projection is quantised: not at all where it is the input table."""
        head = self.decoder.head
        return None if self.decoder.tied else self.format(head.name, head)

    @property
    def quantized_params(self) -> int:
        """Elements of all quantised matrices."""
        layers = sum(
            linear.copies * linear.weight_params
            for name, linear in self.decoder.matrices()
            if self.format(name, linear) is not None
        )
        return layers + (self.decoder.head.weight_params if self.head_format is not None else 0)

    def total(self) -> int:
        """Bytes of all weights."""
        return self.touched(math.inf)

    def touched(self, batch: float) -> int:
        """Bytes of the weights that a batch of tokens is expected to touch: of experts not all."""
        exact = self._plain(self.decoder.embedding_params + self.decoder.position_params)
        exact += self._plain(self.decoder.all_vectors) + self._head()
        expected = 0.0
        for name, linear in self.decoder.matrices():
            size = self._copy(linear, self.format(name, linear))
            if linear.selected == linear.copies or batch == math.inf:
                exact += linear.copies * size
            else:
                expected += size * expected_distinct_experts(linear.copies, linear.selected, batch)
        return exact + round(expected)

    def read(self, batch: float) -> int:
        """Bytes of the weights that a step reads: single rows of the untied input table and of positions."""
        rows = self.decoder.position_params + (0 if self.decoder.tied else self.decoder.embedding_params)
        return self.touched(batch) - self._plain(rows)

    def _head(self) -> int:
        head = self.decoder.head
        if self.decoder.tied:
            return self._plain(head.bias_params)
        return self._copy(head, self.head_format)

    def _copy(self, linear: Linear, fmt: Format | None) -> int:
        """Bytes of one copy of a matrix and its bias."""
        if fmt is None:
            return self._plain(linear.weight_params + linear.bias_params)
        return fmt.bytes(linear, self.bits) + self._plain(linear.bias_params)

    def _plain(self, elements: int) -> int:
        return -(-elements * self.bits // 8)
