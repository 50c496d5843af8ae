"""What decoding a server's answer costs once the load has ended: microseconds for each event.

Prints the best of several rounds, of answers in which each event of about 250 bytes comes in a read of its own and of
answers in which it comes with others.

    python benchmarks/decode.py
"""

import json
import time

from pytest_llmperf.engines.openai.decoding.answer import RawAnswer, decode

EVENTS = 1_000
ROUNDS = 20
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"


def chat(index: int) -> dict:
    """A chat chunk of vLLM."""
    delta = {"content": f" token{index}"}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, "token_ids": None}
    return {**start("chat.completion.chunk"), "choices": [choice]}


def completion(index: int) -> dict:
    """A completions chunk of vLLM that lists its token ids."""
    choice = {"index": 0, "text": f" t{index}", "logprobs": None, "finish_reason": None, "token_ids": [index]}
    return {**start("text_completion"), "choices": [choice]}


def start(kind: str) -> dict:
    """The fields that every chunk repeats."""
    return {"id": "cmpl-6b2f1c0a9d8e4f7b", "object": kind, "created": 1700000000, "model": "mistral-7b"}


def answer(chunk, per_read: int) -> RawAnswer:
    """One whole answer."""
    data = [json.dumps(chunk(index)).encode() for index in range(EVENTS)] + [b"[DONE]"]
    framed = [b"%x\r\ndata: %b\n\n\r\n" % (len(event) + 8, event) for event in data]
    reads = [HEAD, *(b"".join(framed[at : at + per_read]) for at in range(0, len(framed), per_read)), b"0\r\n\r\n"]
    return RawAnswer(list(range(len(reads))), reads, "complete", None)


def microseconds(raw: RawAnswer) -> float:
    """The shortest time to decode an answer, for each of its events."""
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter_ns()
        decoded = decode(raw)
        times.append(time.perf_counter_ns() - begin)
        assert decoded.error is None, decoded.error
        assert decoded.output_tokens == EVENTS
    return min(times) / EVENTS / 1_000


if __name__ == "__main__":
    for chunk in (chat, completion):
        size = len(json.dumps(chunk(EVENTS - 1))) + 8
        for per_read in (1, 8):
            spent = microseconds(answer(chunk, per_read))
            print(f"{chunk.__name__:<10} events of {size} bytes, {per_read} a read: {spent:5.2f} µs an event")
