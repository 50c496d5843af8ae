"""vLLM in process: its AsyncLLM, on GPUs or on its CPU build."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any, TextIO

from pytest_llmperf.clock import NS_PER_S, MonotonicClock
from pytest_llmperf.engines import Chunk, EngineInfo, Request
from pytest_llmperf.engines.logs import EngineLog, root_cause, validation_cause
from pytest_llmperf.engines.processes import ProcessFamily
from pytest_llmperf.engines.spec import EngineSpec
from pytest_llmperf.engines.streams import StreamingEngine
from pytest_llmperf.engines.vllm_arguments import (
    check_names,
    complete_arguments,
    default_environment,
    has_dummy_weights,
    start_error,
)
from pytest_llmperf.errors import EngineError, OptionError, RequestError
from pytest_llmperf.fingerprint import Answer, Outputs, Unavailable
from pytest_llmperf.machine import cpu_name
from pytest_llmperf.models import config_digest, special_tokens
from pytest_llmperf.trace import EngineStamps

__all__ = ["VllmEngine"]


class VllmEngine(StreamingEngine):
    """One AsyncLLM.

    Args:
        spec: The model and the engine arguments.
        log_path: Where the output of vLLM's processes goes.
    """

    def __init__(self, spec: EngineSpec, log_path: str | None) -> None:
        self.clock = MonotonicClock()
        self._spec = spec
        self._log = EngineLog(log_path)
        self._llm: Any = None
        self._processes = ProcessFamily()

    async def open(self) -> EngineInfo:
        """Start the engine; takes from 15 s on.

        Raises:
            OptionError: an engine argument does not exist.
            EngineError: it did not start; the message holds the root cause that its worker printed.
        """
        self._set_environment()
        try:
            with self._processes.growing(), self._log.taking_over():
                self._llm = self._start()
                _log_to(self._log.stream)
        except (EngineError, OptionError):
            raise
        except Exception as error:
            raise self._start_error(error) from None
        self._log.skip()
        return self._info()

    def _set_environment(self) -> None:
        for name, value in default_environment(self._spec).items():
            os.environ.setdefault(name, value)

    def _start(self) -> Any:
        from vllm import envs

        if "VLLM_WORKER_MULTIPROCESSING_METHOD" in envs.environment_variables:
            # A forked worker would inherit pytest's state, threads and descriptors; newer versions always spawn.
            os.environ.setdefault("VLLM_WORKER_MULTIPROCESSING_METHOD", "spawn")
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        arguments = complete_arguments(self._spec)
        check_names(arguments, {f.name for f in fields(AsyncEngineArgs)})
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    def _start_error(self, error: Exception) -> Exception:
        cause = root_cause(self._log.text())
        if cause is None or "validation error" in str(error):
            cause = validation_cause(str(error)) or f"{type(error).__name__}: {_one_line(error)}"
        return start_error(self._spec, cause, what="vLLM", log=f"vLLM's own output is in {self._log.path}.")

    def _info(self) -> EngineInfo:
        import vllm

        config = self._llm.vllm_config
        model, parallel = config.model_config, config.parallel_config
        hf_config = self._spec.model.config or model.hf_config.to_dict()
        on_gpu = self._spec.choice.platform == "cuda"
        world = parallel.tensor_parallel_size * parallel.pipeline_parallel_size
        return EngineInfo(
            kind="vllm",
            version=str(vllm.__version__),
            device=_gpu_name() if on_gpu else cpu_name(),
            device_count=world if on_gpu else 1,
            simulated=False,
            model=self._spec.model.name,
            model_digest=config_digest(hf_config),
            model_config=hf_config,
            dtype=str(model.dtype).removeprefix("torch."),
            quantization=model.quantization,
            kv_cache_dtype=str(config.cache_config.cache_dtype),
            tensor_parallel_size=parallel.tensor_parallel_size,
            pipeline_parallel_size=parallel.pipeline_parallel_size,
            max_model_len=model.max_model_len,
            vocab_size=model.get_vocab_size(),
            special_tokens=special_tokens(hf_config),
            args=complete_arguments(self._spec),
            treatment=dict(self._spec.choice.treatment),
            limits=_limits(config),
        )

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:
        """Stream one request; token ids in, token counts out."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        now = self.clock.now
        with self._own_errors():
            sampling = SamplingParams(
                **{
                    "temperature": 0.0,
                    **request.sampling,
                    "max_tokens": request.output_len,
                    "ignore_eos": True,
                    "detokenize": False,
                    "output_kind": RequestOutputKind.DELTA,
                }
            )
            prompt = {"prompt_token_ids": list(request.prompt)}
            async for output in self._llm.generate(prompt, sampling, request.request_id):
                received = now()
                yield Chunk(
                    received_ns=received,
                    tokens=sum(len(completion.token_ids) for completion in output.outputs),
                    input_tokens=len(output.prompt_token_ids),
                    output_tokens=output.metrics.num_generation_tokens if output.finished else None,
                    stamps=_stamps(output.metrics) if output.finished else None,
                )

    @contextmanager
    def _own_errors(self) -> Iterator[None]:
        """Around the use of vLLM: its exceptions become ours."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except EngineDeadError:
            cause = root_cause(self._log.text()) or "its process ended without an error message (killed?)"
            raise EngineError(
                f"vLLM died while serving the model {self._spec.model.name}: {cause.rstrip('.')}.",
                remedy=f"vLLM's own output is in {self._log.path}.",
            ) from None
        except (ValueError, TypeError) as error:
            raise RequestError(f"vLLM refused the request: {_one_line(error)}") from None

    async def outputs(self, prompts: Sequence[tuple[int, ...]], length: int) -> Outputs | Unavailable:
        """Greedy answers with the log-probabilities of their tokens, before any sampling parameter acts on them."""
        if has_dummy_weights(complete_arguments(self._spec)):
            return Unavailable("the weights are dummies")
        try:
            answers = [await self._answer(number, prompt, length) for number, prompt in enumerate(prompts)]
        except RequestError as error:
            return Unavailable(str(error).rstrip("."), failed=True)
        return Outputs(Outputs.digest(prompts, length, "tokens"), tuple(answers))

    async def _answer(self, number: int, prompt: Sequence[int], length: int) -> Answer:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        completion: Any = None
        with self._own_errors():
            sampling = SamplingParams(
                temperature=0.0,
                max_tokens=length,
                ignore_eos=True,
                detokenize=False,
                logprobs=2,  # the chosen token and the runner-up
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            asked = {"prompt_token_ids": list(prompt)}
            async for output in self._llm.generate(asked, sampling, f"outputs-{number}"):
                completion = output.outputs[0]
            if completion is None or not completion.logprobs:
                raise ValueError("it returned no log-probabilities")
            tokens = tuple(completion.token_ids)
            logprobs = (entry[token].logprob for token, entry in zip(tokens, completion.logprobs, strict=True))
            best = ([one.logprob for one in entry.values()] for entry in completion.logprobs)
            return Answer.of(tokens, logprobs, best)

    def disturbances(self) -> list[str]:
        """Lines of vLLM's log since the last call that tell of compiling, capturing or tuning."""
        return self._log.disturbances()

    async def close(self) -> None:
        """Shut down, wait for every process of this engine, and kill what has not ended after 10 s."""
        llm, self._llm = self._llm, None
        self._processes.update()
        if llm is not None:
            with suppress(Exception):  # a dead engine raises here; the processes are dealt with below
                llm.shutdown()
        self._processes.end(at_once=llm is None)
        _log_to(sys.__stderr__)
        self._log.close()


def _log_to(stream: TextIO | None) -> None:
    """Turn vLLM's own logger in this process to a stream."""
    for handler in logging.getLogger("vllm").handlers:
        # By name: pytest hangs handlers of its own on loggers while it captures.
        if handler.get_name() == "vllm" and isinstance(handler, logging.StreamHandler) and stream is not None:
            handler.setStream(stream)


def _limits(config: Any) -> dict[str, int]:
    """What vLLM came to; its core tells the front end how many blocks the memory that was left makes."""
    found = {
        "max_num_seqs": getattr(config.scheduler_config, "max_num_seqs", None),
        "max_num_batched_tokens": getattr(config.scheduler_config, "max_num_batched_tokens", None),
        "block_size": getattr(config.cache_config, "block_size", None),
        "num_gpu_blocks": getattr(config.cache_config, "num_gpu_blocks", None),
    }
    return {name: number for name, number in found.items() if type(number) is int and number > 0}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _stamps(metrics: Any) -> EngineStamps | None:
    if metrics is None or not metrics.first_token_ts:
        return None
    return EngineStamps(
        queued_ns=round(metrics.queued_ts * NS_PER_S),
        scheduled_ns=round(metrics.scheduled_ts * NS_PER_S),
        first_token_ns=round(metrics.first_token_ts * NS_PER_S),
        last_token_ns=round(metrics.last_token_ts * NS_PER_S),
    )


def _gpu_name() -> str:
    from vllm.platforms import current_platform

    return str(current_platform.get_device_name())
