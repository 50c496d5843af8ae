"""Which test a format is held against where several measured the same, and the room that formats leave."""

from tests.findings.records import case, column, said
from tests.findings.test_questions import asked


def ran(nodeid, ttft, batch=1, *, fp8=False, blocks=None, launches=1, **engine):
    if blocks is not None:
        engine["limits"] = {"num_gpu_blocks": blocks, "block_size": 16}
    return case(nodeid, batch=batch, engine={**engine, "quantization": "fp8" if fp8 else None},
                values={"tpot": 0.02, "ttft": (ttft,) * launches})  # fmt: skip


def test_a_format_is_held_against_the_same_test_in_the_plain_one():
    # The other test comes first by its name, and has more launches.
    alike = [ran("f.py::test_format[plain-1]", 0.02), ran("f.py::test_format[fp8-1]", 0.03, fp8=True)]
    for other in (ran("a.py::test_batch[1]", 0.025, launches=5), ran("z.py::test_batch[1]", 0.01)):
        [finding] = asked("formats", other, *alike)
        assert "TTFT +50.0 % at batch 1" in said(finding)
        assert column(finding, "ttft") == [0.02, 0.03]
        assert finding.tests == ["f.py::test_format[plain-1]", "f.py::test_format[fp8-1]"]


def test_of_another_test_only_where_there_is_none_of_the_same():
    [finding] = asked("formats", ran("a.py::test_batch[1]", 0.025), ran("f.py::test_format[fp8-1]", 0.03, fp8=True),
                      ran("f.py::test_format[plain-16]", 0.2, 16), ran("f.py::test_format[fp8-16]", 0.1, 16, fp8=True),
                      ran("a.py::test_batch[16]", 0.4, 16))  # fmt: skip
    assert "TTFT +20.0 % at batch 1; TPOT 0.0 %, TTFT -50.0 % at batch 16" in said(finding)


def test_each_format_is_held_against_that_of_its_own_test():
    first = [ran("a.py::t[plain]", 0.02), ran("a.py::t[fp8]", 0.03, fp8=True)]
    second = [ran("b.py::t[plain]", 0.04), ran("b.py::t[kv]", 0.08, kv_cache_dtype="fp8")]
    [finding] = asked("formats", *first, *second)
    assert "Fp8 weights against float16 (512 + 256 tokens): TPOT 0.0 %, TTFT +50.0 %" in said(finding)
    assert "Fp8 KV cache against float16 (512 + 256 tokens): TPOT 0.0 %, TTFT +100.0 %" in said(finding)
    assert column(finding, "ttft") == [0.02, 0.08, 0.03]
    assert "b.py::t[plain]" in finding.tests


def test_the_test_of_more_formats_and_loads_is_the_series():
    short = [ran("a.py::t[plain]", 0.02), ran("a.py::t[fp8]", 0.03, fp8=True)]
    long = [
        ran(f"b.py::t[{fp8}-{batch}]", 0.1 + 0.1 * fp8, batch, fp8=fp8) for batch in (1, 4) for fp8 in (False, True)
    ]
    [finding] = asked("formats", *short, *long)
    assert column(finding, "ttft") == [0.1, 0.2, 0.1, 0.2]


def test_the_room_of_a_format_is_told_by_any_of_its_loads():
    def room(plain, fp8):
        return asked("formats", *(
            ran(f"t[{quantized}-{batch}]", 0.1, batch, fp8=quantized, blocks=blocks)
            for quantized, told in ((False, plain), (True, fp8)) for batch, blocks in zip((1, 4), told, strict=True)
        ))[0].sentences  # fmt: skip

    expected = "Room in the KV cache with fp8 weights: +50.0 % (24,000 tokens)."
    assert expected in room((None, 1000), (1500, 1500))
    assert expected in room((1000, None), (None, 1500))
    assert not any("Room" in sentence for sentence in room((None, None), (1500, 1500)))
    assert not any("Room" in sentence for sentence in room((1000, 1000), (1000, None)))
