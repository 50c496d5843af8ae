"""How a model is served on boards: what vLLM makes of its arguments when it knows both, and what it refuses.

A GPU's share of the memory is divided as vLLM does it: what the weights and the peak of a step leave is KV cache. vLLM
measures that peak; here it is the activations of a full step in the widest layer, the logits of all sequences in 32
bits, and half a GiB for what CUDA and its graphs take.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_llmperf.arithmetic import Architecture
from pytest_llmperf.engines.simulated.settings import Arguments
from pytest_llmperf.errors import ArchitectureError, EngineError
from pytest_llmperf.simulation.blocks import BlockPool
from pytest_llmperf.simulation.board import BoardModel
from pytest_llmperf.simulation.scheduler import Scheduler
from pytest_llmperf.simulation.steps import StepModel

__all__ = ["CAPABILITIES", "Deployment", "deploy"]

_TOKEN_BUDGET = 2048
_MAX_SEQUENCES = 128
#: vLLM captures CUDA graphs of up to twice as many tokens as sequences, and no larger ones.
_MOST_CAPTURED = 512
_CUDA_BYTES = 2**29
_GIB = 2**30

#: The least compute capability at which vLLM runs a method.
CAPABILITIES = {
    "awq": 75, "bitsandbytes": 70, "compressed-tensors": 70, "fbgemm_fp8": 80, "fp8": 75, "gptq": 60, "modelopt": 75,
    "modelopt_fp4": 75, "mxfp4": 80,
}  # fmt: skip

#: Methods whose weights are small and whose products are not fast for that.
_UNKNOWN_KERNELS = ("bitsandbytes",)


@dataclass(frozen=True)
class Deployment:
    """A model on boards, with all that its engine is made of.

    Attributes:
        model: As it is served.
        arguments: What was asked for.
        max_model_len: The longest sequence, in tokens.
        token_budget: Most tokens in a step.
        max_sequences: Most sequences at a time.
        kv_blocks: Blocks that sequences can hold.
        footprint_bytes: What the engine takes of each GPU's memory.
    """

    board: BoardModel
    model: Architecture
    arguments: Arguments
    max_model_len: int
    token_budget: int
    max_sequences: int
    kv_blocks: int
    footprint_bytes: int

    def scheduler(self) -> Scheduler:
        """A scheduler with an empty KV cache."""
        arguments = self.arguments
        return Scheduler(
            token_budget=self.token_budget,
            max_sequences=self.max_sequences,
            blocks=BlockPool(self.kv_blocks, arguments.block_size, arguments.enable_prefix_caching),
            max_model_len=self.max_model_len,
            chunked_prefill=arguments.enable_chunked_prefill,
            async_scheduling=arguments.async_scheduling,
        )

    @property
    def in_force(self) -> dict[str, int]:
        """The limits that it came to, under vLLM's names; ``num_gpu_blocks`` is what the KV cache has."""
        return {
            "max_num_batched_tokens": self.token_budget,
            "max_num_seqs": self.max_sequences,
            "max_model_len": self.max_model_len,
            "block_size": self.arguments.block_size,
            "num_gpu_blocks": self.kv_blocks,
        }

    def steps(self) -> StepModel:
        """How long its steps take."""
        arguments = self.arguments
        return StepModel(
            self.model,
            self.board,
            gpus=arguments.tensor_parallel_size,
            kv_dtype=arguments.kv_cache_dtype,
            eager=arguments.enforce_eager,
            captured_tokens=min(2 * self.max_sequences, _MOST_CAPTURED),
        )


def deploy(stored: Architecture, longest: int, arguments: Arguments, board: BoardModel) -> Deployment:
    """Serve a model on boards.

    Args:
        stored: The model as its checkpoint has it.
        longest: Tokens that its config allows a sequence.
        arguments: vLLM's.
        board: One of the boards; they are alike.

    Raises:
        EngineError: vLLM would not start: in its words as far as they fit.
    """
    model = _served(stored, arguments, board)
    _check_split(model, arguments.tensor_parallel_size)
    max_model_len = arguments.max_model_len or longest
    if max_model_len > longest:
        raise EngineError(
            f"max_model_len ({max_model_len}) is greater than the {longest} tokens of the model's config.json.",
            remedy="Lower max_model_len.",
        )
    budget, sequences = _limits(arguments, max_model_len)
    free = _cache_bytes(model, arguments, board, budget, sequences)
    gpus = arguments.tensor_parallel_size
    token_bytes = model.kv_bytes_per_token(arguments.kv_cache_dtype, tensor_parallel=gpus) / gpus
    block_bytes = token_bytes * arguments.block_size
    blocks = arguments.num_gpu_blocks_override or int(free // block_bytes)
    # vLLM sets one block aside.
    usable = blocks - 1
    if usable * arguments.block_size < max_model_len:
        raise EngineError(
            f"A sequence of max_model_len ({max_model_len}) tokens needs {max_model_len * token_bytes / _GIB:.2f} GiB "
            f"of KV cache on each GPU, and {max(0, usable) * block_bytes / _GIB:.2f} GiB are left.",
            remedy=_make_room(usable * arguments.block_size, arguments),
        )
    used = arguments.gpu_memory_utilization * board.product.memory_bytes - free + blocks * block_bytes
    if used > board.product.memory_bytes:
        raise EngineError(
            f"num_gpu_blocks_override ({blocks}) needs {blocks * block_bytes / _GIB:.2f} GiB of each GPU, and "
            f"{board.product.name} has {free / _GIB:.2f} GiB left for them.",
            remedy="Lower num_gpu_blocks_override, or leave it out.",
        )
    return Deployment(board, model, arguments, max_model_len, budget, sequences, usable, round(used))


def _make_room(tokens: int, arguments: Arguments) -> str:
    if arguments.num_gpu_blocks_override is not None:
        more = "raise num_gpu_blocks_override"
    else:
        more = "raise gpu_memory_utilization or tensor_parallel_size"
    return f"Lower max_model_len to {tokens}, or {more}." if tokens > 0 else f"{more[0].upper()}{more[1:]}."


def _served(stored: Architecture, arguments: Arguments, board: BoardModel) -> Architecture:
    capability = board.product.compute_capability
    if arguments.dtype == "bfloat16" and capability < (8, 0):
        raise EngineError(
            f"bfloat16 needs a GPU of compute capability 8.0 or more, and {board.product.name} has "
            f"{capability[0]}.{capability[1]}.",
            remedy="Use dtype=half.",
        )
    own, asked = stored.quantization, arguments.quantization
    if own is not None and asked is not None and not asked.lower().startswith(own.method):
        raise EngineError(
            f"The checkpoint is quantised by {own.method}, and quantization={asked} is another method.",
            remedy="Leave quantization out, or use a checkpoint that is not quantised.",
        )
    if (asked or (own.method if own else "")).lower() in _UNKNOWN_KERNELS:
        raise EngineError(
            f"How long the kernels of {asked or (own.method if own else '')} take is not simulated: they unpack the "
            "weights, and need not be faster than 16 bits.",
            remedy="Use fp8, awq or gptq, or a real GPU.",
        )
    dtype = arguments.dtype
    if dtype == "auto" and capability < (8, 0) and stored.compute_dtype == "bfloat16":
        dtype = "float16"  # as vLLM does on boards without bfloat16
    try:
        model = stored.served_as(dtype, arguments.quantization)
    except ArchitectureError as error:
        raise EngineError(f"quantization={arguments.quantization}: {error.problem}", remedy=error.remedy) from None
    method = model.quantization.method if model.quantization is not None else None
    least = CAPABILITIES.get(method or "", 0)
    if capability[0] * 10 + capability[1] < least:
        raise EngineError(
            f"The quantization {method} needs a GPU of compute capability {least / 10:.1f} or more, and "
            f"{board.product.name} has {capability[0]}.{capability[1]}.",
            remedy="Use another quantization, or another GPU.",
        )
    return model


def _check_split(model: Architecture, gpus: int) -> None:
    for layer in model.decoder.layers:
        heads, kv_heads = layer.attention.heads, layer.attention.kv_heads
        if heads % gpus:
            raise EngineError(
                f"The {heads} attention heads cannot be divided by tensor_parallel_size ({gpus}).",
                remedy=f"Use a tensor_parallel_size that divides {heads}.",
            )
        if layer.attention.latent_dim is None and kv_heads % gpus and gpus % kv_heads:
            raise EngineError(
                f"The {kv_heads} KV heads can be neither divided by tensor_parallel_size ({gpus}) nor repeated to it.",
                remedy=f"Use a tensor_parallel_size that divides {kv_heads} or is a multiple of it.",
            )


def _limits(arguments: Arguments, max_model_len: int) -> tuple[int, int]:
    """Most tokens and most sequences of a step, where they are not given as vLLM chooses them."""
    budget, sequences = arguments.max_num_batched_tokens, arguments.max_num_seqs
    if budget is None:
        budget = _TOKEN_BUDGET if arguments.enable_chunked_prefill else max(max_model_len, _TOKEN_BUDGET)
        budget = min(budget, (sequences or _MAX_SEQUENCES) * max_model_len)
    if sequences is None:
        sequences = min(_MAX_SEQUENCES, budget)
    if budget < sequences:
        raise EngineError(
            f"max_num_batched_tokens ({budget}) is smaller than max_num_seqs ({sequences}).",
            remedy="Raise max_num_batched_tokens, or lower max_num_seqs.",
        )
    if not arguments.enable_chunked_prefill and budget < max_model_len:
        raise EngineError(
            f"max_num_batched_tokens ({budget}) is smaller than max_model_len ({max_model_len}) and prompts are not "
            "divided into chunks.",
            remedy="Raise max_num_batched_tokens, lower max_model_len, or leave enable_chunked_prefill on.",
        )
    return budget, sequences


def _cache_bytes(model: Architecture, arguments: Arguments, board: BoardModel, budget: int, sequences: int) -> float:
    """Bytes of each GPU that are left for the KV cache."""
    share = arguments.gpu_memory_utilization * board.product.memory_bytes
    weights = model.weight_bytes() / arguments.tensor_parallel_size
    widest = max(linear.inputs + 2 * linear.outputs for _, linear in model.decoder.matrices())
    head = model.decoder.head
    peak = budget * (widest / arguments.tensor_parallel_size + 2 * head.inputs) * 2 + sequences * head.outputs * 4
    left = share - weights - peak - _CUDA_BYTES
    if left <= 0:
        raise EngineError(
            f"The weights need {weights / _GIB:.1f} GiB of each GPU and a step {(peak + _CUDA_BYTES) / _GIB:.1f} GiB, "
            f"and {share / _GIB:.1f} GiB may be used (gpu_memory_utilization={arguments.gpu_memory_utilization:g} of "
            f"{board.product.name}): no memory is left for the KV cache.",
            remedy="Raise tensor_parallel_size, quantize the weights, or use a smaller model.",
        )
    return left
