from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from pytest_llmperf.engines.logs import EngineLog, last_lines, likely_cause, root_cause, validation_cause

# As vLLM prints it: the worker's own traceback first, then those of everyone who waited for it.
OUT_OF_MEMORY = """\
(MainProcess pid=7306) INFO 11-30 03:50:25 [model.py:733] Resolved architecture: MistralForCausalLM
(MainProcess pid=7306) WARNING 11-30 03:50:25 [vllm.py:1703] Error: not an exception, only a word in a message
(EngineCore pid=7343) INFO 11-30 03:50:50 [core.py:133] Initializing a V1 LLM engine with config: model='m'
(Worker_TP1 pid=7351) ERROR 11-30 03:51:02 [executor.py:772] WorkerProc failed to start.
(Worker_TP1 pid=7351) ERROR 11-30 03:51:02 [executor.py:772] Traceback (most recent call last):
(Worker_TP1 pid=7351) ERROR 11-30 03:51:02 [executor.py:772]   File "gpu_worker.py", line 88, in load_model
(Worker_TP1 pid=7351) ERROR 11-30 03:51:02 [executor.py:772]     raise torch.OutOfMemoryError(
(Worker_TP1 pid=7351) ERROR 11-30 03:51:02 [executor.py:772] torch.OutOfMemoryError: CUDA out of memory. Tried to
(EngineCore pid=7343) ERROR 11-30 03:51:04 [core.py:1100] EngineCore failed to start.
(EngineCore pid=7343) ERROR 11-30 03:51:04 [core.py:1100] Exception: WorkerProc failed. See stack trace for root cause.
Process EngineCore:
Traceback (most recent call last):
  File "process.py", line 314, in _bootstrap
Exception: WorkerProc initialization failed. See stack trace for root cause.
Traceback (most recent call last):
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}
"""

POINTERS = [
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    "vllm.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "RuntimeError: Worker failed with error 'x', please check the stack trace above for the root cause",
    "Exception: WorkerProc initialization failed. See stack trace for root cause.",
]


class TestRootCause:
    def test_it_is_the_workers_exception_and_not_those_of_who_waited_for_it(self):
        assert root_cause(OUT_OF_MEMORY) == "OutOfMemoryError: CUDA out of memory. Tried to"

    @pytest.mark.parametrize(
        ("line", "cause"),
        [
            ("ValueError: too long", "ValueError: too long"),
            ("  ValueError: too long  ", "ValueError: too long"),
            ("(EngineCore pid=1) ValueError: too long", "ValueError: too long"),
            ("(EngineCore_DP0 pid=1) ERROR 11-30 03:51:04 [core.py:1] KeyError: 'x'", "KeyError: 'x'"),
            ("ERROR 11-30 03:51:04 [core.py:1] KeyError: 'x'", "KeyError: 'x'"),
            ("CRITICAL 11-30 03:51:04 [launcher.py:1] SystemExit: 1", "SystemExit: 1"),
            ("(EngineCore pid=1) (Worker_TP0 pid=2) ERROR 11-30 03:51:04 [a.py:1] OSError: x", "OSError: x"),
            ("(EngineCore pid=1) (VllmWorker rank=0 pid=2) ERROR 11-30 03:51:04 [a.py:1] OSError: x", "OSError: x"),
            ("huggingface_hub.errors.LocalEntryNotFoundError: Cannot find", "LocalEntryNotFoundError: Cannot find"),
            ("pydantic_core._pydantic_core.ValidationError: 1 error", "ValidationError: 1 error"),
            ("torch.AcceleratorError: CUDA error: no kernel image", "AcceleratorError: CUDA error: no kernel image"),
            ("KeyboardInterrupt: stopped", "KeyboardInterrupt: stopped"),
            ("Exception: the driver is too old", "Exception: the driver is too old"),
            ("(EngineCore pid=1) ERROR 11-30 03:51:04 [a.py:1] Exception: too old", "Exception: too old"),
        ],
    )
    def test_it_is_found_behind_any_prefix(self, line, cause):
        assert root_cause(f"Traceback (most recent call last):\n{line}\n") == cause

    @pytest.mark.parametrize("pointer", POINTERS)
    def test_a_line_that_points_at_another_is_none(self, pointer):
        assert root_cause(pointer) is None
        assert root_cause(f"{pointer}\nValueError: here") == "ValueError: here"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "all is well",
            "    raise ValueError('x')",
            "(EngineCore pid=1) INFO 11-30 03:51:04 [a.py:1] ValueError: was handled",
            "(EngineCore pid=1) WARNING 11-30 03:51:04 [a.py:1] ValueError: was handled",
            "Error handling: on",
            "AssertionError",
            "not ValueError: within a line",
        ],
    )
    def test_where_no_exception_ended_a_traceback_there_is_none(self, text):
        assert root_cause(text) is None


class TestConfiguration:
    VALUE = "1 validation error for ModelConfig\n  Value error, max_model_len (9) is greater [type=value_error]"
    FIELD = (
        "2 validation errors for SchedulerConfig\nmax_num_seqs\n"
        "  Input should be greater than or equal to 1 [type=greater_than_equal, input_value=0, input_type=int]\n"
        "    For further information visit https://example.com\nother\n"
    )

    @pytest.mark.parametrize(
        ("message", "cause"),
        [
            (VALUE, "max_model_len (9) is greater"),
            (FIELD, "max_num_seqs: Input should be greater than or equal to 1 (given: 0)"),
            ("1 validation error for X\n\n  Assertion failed, no\n", "no"),
            ("1 validation error for X\nfield\n  Input is odd", "field: Input is odd (given: ?)"),
            ("1 validation error for X", None),
            ("1 validation error for X\nfield", None),
            ("too long\nValue error, x", None),
            ("", None),
        ],
    )
    def test_it_is_the_sentence_that_says_what_is_wrong(self, message, cause):
        assert validation_cause(message) == cause

    @pytest.mark.parametrize("prefix", ["", "(EngineCore pid=1) ERROR 11-30 03:51:04 [core.py:1] "])
    def test_it_is_found_in_a_log(self, prefix):
        message = f"pydantic_core._pydantic_core.ValidationError: {self.VALUE}"
        text = "\n".join(["Traceback (most recent call last):", *message.splitlines(), "RuntimeError: later"])
        text = "\n".join(prefix + line for line in text.splitlines())
        assert root_cause(text) == "max_model_len (9) is greater"

    def test_it_is_what_a_program_says_about_its_command_line(self):
        usage = "usage: api_server.py [-h]\napi_server.py: error: unrecognized arguments: --x\n"
        assert root_cause(usage) == "unrecognized arguments: --x"
        assert root_cause(f"{usage}ValueError: here") == "ValueError: here"


class TestLastLines:
    @pytest.mark.parametrize(
        ("text", "lines"),
        [("", None), ("\n \n", None), ("a", "a"), ("a\n\n b \nc\nd\n", "b / c / d"), ("x" * 999, "x" * 200)],
    )
    def test_they_are_what_was_said_last(self, text, lines):
        assert last_lines(text) == lines


class TestLikelyCause:
    @pytest.mark.parametrize("pointer", POINTERS)
    def test_where_all_point_at_what_is_not_there_a_process_was_killed(self, pointer):
        assert "killed" in likely_cause(f"INFO up\n{pointer}\nnanobind: leaked 4 instances!\n")

    def test_else_it_is_the_root_cause_or_what_was_said_last(self):
        assert likely_cause(OUT_OF_MEMORY) == root_cause(OUT_OF_MEMORY)
        assert likely_cause("INFO up\n") == "INFO up"
        assert likely_cause("") is None


def open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.fixture
def log(tmp_path):
    log = EngineLog(str(tmp_path / "logs" / "engine.log"))
    yield log
    log.close()


class TestTakingOver:
    def test_what_this_process_and_its_children_print_goes_to_the_file(self, log, capfd):
        with log.taking_over():
            print("from Python")
            print("to stderr", file=sys.stderr)
            os.write(1, b"from the descriptor\n")
            subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
        print("afterwards")
        sys.stdout.flush()
        text = log.text()
        for line in ("from Python", "to stderr", "from the descriptor", "from a child"):
            assert line in text
        assert "afterwards" not in text
        captured = capfd.readouterr()
        assert "afterwards" in captured.out
        assert "from" not in captured.out + captured.err

    @pytest.mark.parametrize("error", [None, ValueError("x"), KeyboardInterrupt()])
    def test_descriptors_and_streams_are_restored_whatever_happens(self, log, error):
        before = (os.fstat(1), os.fstat(2), sys.stdout, sys.stderr)
        open_before = open_descriptors()
        with pytest.raises(type(error)) if error else nullcontext(), log.taking_over():
            assert os.fstat(1).st_ino == os.fstat(2).st_ino == log.path.stat().st_ino
            if error is not None:
                raise error
        assert (os.fstat(1), os.fstat(2), sys.stdout, sys.stderr) == before
        assert open_descriptors() == open_before

    def test_a_child_that_lives_on_keeps_the_file(self, log):
        program = "input(); print('after the start')"
        with log.taking_over():
            child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
        child.communicate(b"\n")
        assert "after the start" in log.text()


class TestFile:
    def test_without_a_path_it_is_temporary(self):
        log = EngineLog(None)
        assert log.path.exists()
        assert log.whereabouts() is None
        log.close()
        assert not log.path.exists()
        log.close()

    def test_what_an_earlier_engine_printed_is_not_this_ones(self, tmp_path):
        path = tmp_path / "b.log"
        path.write_text("ValueError: of yesterday\nJIT compiling\n")
        log = EngineLog(str(path))
        log.stream.write("today\n")
        assert log.text() == "today\n"
        assert log.disturbances() == []
        assert str(path) in log.whereabouts()
        path.unlink()
        assert log.text() == ""
        log.close()

    def test_with_a_path_it_stays_and_grows(self, tmp_path):
        path = tmp_path / "a" / "b.log"
        for line in ("first", "second"):
            log = EngineLog(str(path))
            log.stream.write(f"{line}\n")
            log.close()
        assert path.read_text() == "first\nsecond\n"

    def test_bytes_that_are_no_text_are_no_error(self, log):
        with log.taking_over():
            os.write(1, b"\xff\xfe JIT compiling\nValueError: \xff\n")
        assert root_cause(log.text()) == "ValueError: \N{REPLACEMENT CHARACTER}"
        assert len(log.disturbances()) == 1


class TestDisturbances:
    @pytest.mark.parametrize(
        "line",
        [
            "INFO [backends.py:1] Compiling a graph for compile range (1, 8192) takes 3.1 s",
            "INFO [monitor.py:34] torch.compile takes 21.02 s in total",
            "INFO [gpu_model_runner.py:1] Graph capturing finished in 4 secs, took 0.5 GiB",
            "Capturing CUDA graphs (decode, FULL): 100%",
            "WARNING [jit_monitor.py:1] Triton kernel JIT compilation during inference: _fwd_kernel",
            "INFO [backends.py:1] Dynamo bytecode transform time: 4.1 s",
            "INFO [autotuner.py:1] flashinfer: Autotuning process starts",
        ],
    )
    def test_compiling_capturing_and_tuning_are_noticed(self, log, line):
        log.stream.write(f"INFO all is well\n  {line}\nINFO again\n")
        assert log.disturbances() == [line]

    def test_serving_disturbs_nothing(self, log):
        log.stream.write("INFO [loggers.py:259] Engine 000: Avg generation throughput: 9.6 tokens/s, Running: 1 reqs\n")
        assert log.disturbances() == []

    def test_each_is_told_once(self, log):
        log.stream.write("JIT compiling a\n")
        assert log.disturbances() == ["JIT compiling a"]
        assert log.disturbances() == []
        log.stream.write("JIT compiling b\n")
        assert log.disturbances() == ["JIT compiling b"]

    def test_a_line_still_being_written_is_told_when_it_is_whole(self, log):
        with log.taking_over():
            os.write(1, b"JIT comp")
            assert log.disturbances() == []
            os.write(1, b"iling a\nJIT")
            assert log.disturbances() == ["JIT compiling a"]
            os.write(1, b" compiling b\n")
            assert log.disturbances() == ["JIT compiling b"]

    def test_what_came_before_the_start_was_over_is_skipped(self, log):
        log.stream.write("torch.compile takes 21 s\n")
        log.skip()
        assert log.disturbances() == []
