"""Points to fit the simulated boards to, and to check them with: run it on a real board.

Every test is one point; nothing is gated. One launch is enough: launches differ by less than a simulation is off.

    pytest benchmarks/simulation/points --llmperf-engine vllm --llmperf-model mistral-7b \
        --llmperf-launches 1 --llmperf-repeats 2 --llmperf-report FOLDER

``test_few`` is for further models and engine arguments; ``test_unseen`` is never fitted to.
"""

import pytest

from pytest_llmperf import Workload

UNIFORM = Workload(input_len={"uniform": [64, 512]}, output_len={"uniform": [32, 128]}, concurrency=1)


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64, 128])
def test_end_to_end(llmperf, batch):
    llmperf.measure(Workload(512, 256, batch=batch))


@pytest.mark.parametrize("batch", [1, 2, 4, 8, 16, 32, 64, 128])
def test_decode(llmperf, batch):
    llmperf.measure(Workload(1, 256, batch=batch))


@pytest.mark.parametrize(
    ("input_len", "batch"),
    [(32, 1), (32, 16), (128, 1), (128, 8), (128, 32), (256, 1), (512, 1), (512, 2), (512, 4), (512, 8), (512, 32),
     (1024, 1), (1024, 4), (2048, 1), (2048, 4), (4096, 1), (4096, 4), (8192, 1), (16384, 1)],
)  # fmt: skip
def test_prefill(llmperf, input_len, batch):
    llmperf.measure(Workload(input_len, 1, batch=batch))


@pytest.mark.parametrize(
    ("input_len", "output_len", "batch"),
    [(128, 128, 1), (128, 128, 8), (128, 128, 64), (1024, 128, 1), (1024, 128, 8), (1024, 128, 32),
     (2048, 128, 1), (2048, 128, 4), (2048, 128, 16), (4096, 64, 1), (4096, 64, 4), (4096, 64, 16),
     (256, 512, 4), (256, 512, 32), (64, 768, 16), (8192, 64, 2)],
)  # fmt: skip
def test_shapes(llmperf, input_len, output_len, batch):
    llmperf.measure(Workload(input_len, output_len, batch=batch))


@pytest.mark.parametrize("concurrency", [4, 16, 64])
def test_closed_loop(llmperf, concurrency):
    llmperf.measure(UNIFORM.replace(concurrency=concurrency, requests=4 * concurrency))


@pytest.mark.parametrize(("rate", "requests"), [(4, 24), (16, 96), (48, 240)])
def test_open_loop(llmperf, rate, requests):
    llmperf.measure(UNIFORM.replace(rate=rate, requests=requests))


@pytest.mark.parametrize("batch", [1, 16, 64, 128, 256])
def test_large(llmperf, batch):
    llmperf.measure(Workload(512, 128, batch=batch))


@pytest.mark.parametrize(("shared", "batch"), [(0, 16), (1024, 1), (1024, 16), (2032, 16)])
def test_shared_prefix(llmperf, shared, batch):
    llmperf.measure(Workload(2048, 32, batch=batch, shared_prefix=shared))


@pytest.mark.parametrize(
    ("input_len", "output_len", "batch"),
    [(1, 128, 1), (1, 128, 16), (1, 128, 64), (512, 128, 1), (512, 128, 16), (512, 128, 64), (512, 1, 1), (2048, 1, 4),
     (2048, 32, 16)],
)  # fmt: skip
def test_few(llmperf, input_len, output_len, batch):
    llmperf.measure(Workload(input_len, output_len, batch=batch))


@pytest.mark.parametrize(
    ("input_len", "output_len", "batch"),
    [(256, 128, 2), (256, 128, 12), (256, 128, 48), (768, 200, 3), (768, 200, 24), (1500, 100, 6), (3000, 50, 2),
     (3000, 50, 8), (64, 64, 96), (1, 512, 1), (1, 512, 6), (1, 512, 24), (1, 512, 96), (768, 1, 1), (768, 1, 3),
     (768, 1, 12), (1500, 1, 2), (3000, 1, 1), (3000, 1, 4)],
)  # fmt: skip
def test_unseen(llmperf, input_len, output_len, batch):
    llmperf.measure(Workload(input_len, output_len, batch=batch))


@pytest.mark.parametrize("load", [{"concurrency": 8}, {"concurrency": 32}, {"rate": 8}], ids=["8", "32", "8-a-second"])
def test_unseen_loop(llmperf, load):
    lengths = {"input_len": {"uniform": [128, 1024]}, "output_len": {"uniform": [64, 256]}}
    llmperf.measure(Workload(**lengths, **load, requests=64))
