"""How fast is this machine itself: memory, transfers, matrices, links between its GPUs?

Copies and matrix products without an engine, in a process of their own. Nominally equal machines of two providers
differ: run it on both and lay the reports side by side, ``python -m pytest_llmperf compare A B``.

Options: none needed; ``--gpu-clock`` measures at a locked clock. On vLLM's CPU build it is the processor's memory.

Found: an H200 copies at 4.15 to 4.24 of its 4.8 TB/s, and at 385 GB/s to another of its host (NVLink); bfloat16
products reach 77 to 80 % of the peak. A V100's copies reach 722 of 900 GB/s. Published: two providers'
nominally equal servers with 8 A100 differed by 2 times in latency.
"""


def test_peaks(llmperf):
    llmperf.check_hardware()
