"""The workflows and the action of .github/, checked without GitHub."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.y*ml"))
CONFIG = GITHUB / "actionlint.yaml"
ACTION = GITHUB / "actions" / "llmperf"
PINNED = re.compile(r"[\w.-]+/[\w./-]+@([0-9a-f]{40}|v\d+(\.\d+)*)")


def lint(*files):
    # Missing is a failure, not a skip: the dev extra holds it.
    beside_python = Path(sys.executable).with_name("actionlint")
    program = str(beside_python) if beside_python.exists() else shutil.which("actionlint")
    assert program, "actionlint is missing; install it with: pip install -e '.[dev]'"
    # No shellcheck or pyflakes: whether they are installed must not decide the outcome.
    return subprocess.run(
        [program, "-no-color", "-shellcheck=", "-pyflakes=", f"-config-file={CONFIG}", *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


def read(path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if True in content:  # YAML 1.1 reads the key "on" as true
        content["on"] = content.pop(True)
    return content


def steps_of(content):
    """The steps of a workflow or of a composite action."""
    jobs = content["jobs"].values() if "jobs" in content else [content["runs"]]
    return [step for job in jobs for step in job["steps"]]


def module(name):
    spec = importlib.util.spec_from_file_location(f"llmperf_action_{name}", ACTION / f"{name}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
everything = pytest.mark.parametrize("path", [*WORKFLOWS, ACTION / "action.yml"], ids=lambda path: path.name)


def test_the_expected_workflows_are_there():
    assert [path.name for path in WORKFLOWS] == ["perf-gate.yml", "tests.yml"]


def with_tags(text):
    """Commits replaced by the major version in their comment: actionlint knows actions' inputs only by tag."""
    return re.sub(r"@[0-9a-f]{40} # (v\d+)[.\d]*", r"@\1", text)


def test_actionlint_finds_nothing():
    done = lint(*WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr


@workflows
def test_actionlint_finds_no_wrong_input_of_a_foreign_action(tmp_path, path):
    copy = tmp_path / path.name
    copy.write_text(with_tags(path.read_text(encoding="utf-8")), encoding="utf-8")
    done = lint(copy)
    assert done.returncode == 0, done.stdout


def test_actionlint_finds_nothing_in_the_actions_steps(tmp_path):
    # It lints workflows only, so the steps are put into one that has the action's inputs.
    action = yaml.safe_load(with_tags((ACTION / "action.yml").read_text(encoding="utf-8")))
    workflow = {
        "on": {"workflow_call": {"inputs": {name: {"type": "string"} for name in action["inputs"]}}},
        "jobs": {"action": {"runs-on": "ubuntu-24.04", "steps": action["runs"]["steps"]}},
    }
    path = tmp_path / "steps.yml"
    path.write_text(yaml.safe_dump(workflow), encoding="utf-8")
    done = lint(path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "complaint"),
    [
        ("", "", None),
        ("runs-on: [self-hosted, gpu]", "runs-onn: [self-hosted, gpu]", 'unexpected key "runs-onn"'),
        ("runs-on: [self-hosted, gpu]", "runs-on: [self-hosted, gpus]", 'label "gpus" is unknown'),
        ("github.event_name ==", "github.evnt_name ==", 'property "evnt_name" is not defined'),
        ("steps.measure.outcome", "steps.measured.outcome", 'property "measured" is not defined'),
        ("inputs.gpu-clock ||", "inputs.gpu-clok ||", 'property "gpu-clok" is not defined'),
        ("queue: max", "quue: max", 'unexpected key "quue"'),
        ("if-no-files-found: error", "if-no-file-found: error", 'input "if-no-file-found" is not defined'),
    ],
)
def test_actionlint_would_find_a_fault(tmp_path, right, wrong, complaint):
    text = (GITHUB / "workflows" / "perf-gate.yml").read_text(encoding="utf-8")
    assert right in text
    path = tmp_path / "changed.yml"
    path.write_text(with_tags(text.replace(right, wrong)), encoding="utf-8")
    done = lint(path)
    if complaint is None:
        assert done.returncode == 0, done.stdout
    else:
        assert done.returncode == 1
        assert complaint in done.stdout


@everything
def test_every_foreign_action_is_pinned(path):
    used = [step["uses"] for step in steps_of(read(path)) if "uses" in step]
    assert used
    for name in used:
        if name.startswith("./"):
            assert (ROOT / name / "action.yml").is_file()
        else:
            assert PINNED.fullmatch(name), f"{path.name}: {name} is not pinned to a tag or a commit"


@everything
def test_no_script_has_an_expression_pasted_into_it(path):
    for step in steps_of(read(path)):
        assert "${{" not in step.get("run", ""), f"{path.name}: hand the value over with env"


@workflows
def test_permissions_are_declared_and_read_only(path):
    content = read(path)
    assert content["permissions"] == {"contents": "read"}
    for job in content["jobs"].values():
        assert "write" not in str(job.get("permissions", ""))


@workflows
def test_no_trigger_runs_foreign_code_with_our_rights(path):
    triggers = read(path)["on"]
    assert not {"pull_request_target", "workflow_run", "issue_comment"} & set(triggers)


@workflows
def test_jobs_end_and_leave_no_credentials(path):
    for job in read(path)["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 120
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_nothing_self_hosted_runs_for_a_fork():
    seen = 0
    for path in WORKFLOWS:
        content = read(path)
        for job in content["jobs"].values():
            if "self-hosted" in job["runs-on"]:
                seen += 1
                assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
                assert set(content["on"]) == {"pull_request", "workflow_dispatch"}
    assert seen == 1


def test_measurements_wait_for_each_other_and_are_not_interrupted():
    job = read(GITHUB / "workflows" / "perf-gate.yml")["jobs"]["gate"]
    assert "${{" not in job["concurrency"]["group"]
    assert job["concurrency"]["cancel-in-progress"] is False


def test_the_one_test_command_is_what_the_workflow_runs():
    jobs = read(GITHUB / "workflows" / "tests.yml")["jobs"]
    assert [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step] == [
        "scripts/test.sh --without-vllm",
        "scripts/test.sh",
    ]
    supported = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert jobs["light"]["strategy"]["matrix"]["python"] == supported


def test_the_action_has_the_shape_of_a_composite_action():
    action = read(ACTION / "action.yml")
    assert action["runs"]["using"] == "composite"
    for name, definition in action["inputs"].items():
        assert definition["description"], name
        assert isinstance(definition["default"], str), f"{name}: an input without a string default cannot be left out"
    for step in action["runs"]["steps"]:
        assert ("run" in step) != ("uses" in step)
        assert "run" not in step or step["shell"] == "bash"
        assert "timeout-minutes" not in step, "not known in composite actions"
    used = set(re.findall(r"inputs\.([\w-]+)", (ACTION / "action.yml").read_text(encoding="utf-8")))
    assert used == set(action["inputs"])
    assert [step.get("if") for step in action["runs"]["steps"]] == [None, "${{ always() }}", "${{ always() }}"]


def test_the_gate_gives_the_action_only_inputs_it_has():
    for step in read(GITHUB / "workflows" / "perf-gate.yml")["jobs"]["gate"]["steps"]:
        if step.get("uses") == "./.github/actions/llmperf":
            assert set(step["with"]) <= set(read(ACTION / "action.yml")["inputs"])
            return
    pytest.fail("the gate does not use the action")


def test_the_measuring_step_hands_over_what_the_script_reads():
    step = read(ACTION / "action.yml")["runs"]["steps"][0]
    assert {f"LLMPERF_{name}" for name in (*module("measure").INPUTS, "PYTHON")} == set(step["env"])


GIVEN = {
    "LLMPERF_SUITES": "suites/",
    "LLMPERF_ENGINE": "vllm,enforce_eager=true",
    "LLMPERF_REPORT": "reports/ci",
    "LLMPERF_TIMEOUT_MINUTES": "60",
}


def pytest_words(words):
    return words[words.index("pytest") + 1 :]


def test_a_command_without_optional_inputs():
    words = module("measure").command({**GIVEN, "LLMPERF_MODEL": "", "LLMPERF_GPU_CLOCK": "", "LLMPERF_SAVE": "false"})
    assert words[:4] == ["timeout", "--signal=INT", "--kill-after=2m", "60m"]
    assert pytest_words(words) == ["suites/", "--llmperf-engine=vllm,enforce_eager=true", "--llmperf-report=reports/ci"]


def test_a_command_with_every_input():
    more = {"MODEL": "mistral-7b", "GPU_CLOCK": "900", "SAVE": "true", "EXTRA_ARGS": "-k 'decode and not 16' -x"}
    words = module("measure").command(GIVEN | {f"LLMPERF_{name}": value for name, value in more.items()})
    assert pytest_words(words)[3:] == [
        "--llmperf-model=mistral-7b",
        "--gpu-clock=900",
        "--llmperf-save",
        "-k",
        "decode and not 16",
        "-x",
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("GPU_CLOCK", "900; reboot", "gpu-clock is a whole number"),
        ("GPU_CLOCK", "0", "gpu-clock is a whole number"),
        ("TIMEOUT_MINUTES", "", "timeout-minutes is empty"),
        ("TIMEOUT_MINUTES", "1.5", "timeout-minutes is a whole number"),
        ("SUITES", "--collect-only", "suites is a path"),
        ("ENGINE", " ", "engine is empty"),
        ("SAVE", "yes", "save is true or false"),
        ("EXTRA_ARGS", "-k 'decode", "extra-args: No closing quotation"),
    ],
)
def test_an_input_that_makes_no_sense_is_named(name, value, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        module("measure").command(GIVEN | {f"LLMPERF_{name}": value})


def step_process(number, cwd, env):
    """Start a run step of the action as a runner would."""
    script = read(ACTION / "action.yml")["runs"]["steps"][number]["run"]
    return subprocess.Popen(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=cwd,
        env={**os.environ, "GITHUB_ACTION_PATH": str(ACTION), "LLMPERF_PYTHON": sys.executable, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_step(number, cwd, env):
    with step_process(number, cwd, env) as process:
        out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


PLAIN_PLUGIN = """
def pytest_addoption(parser):
    for name in ("engine", "report", "model"):
        parser.addoption(f"--llmperf-{name}")
"""


def plain_project(folder):
    """A project whose pytest takes our options and does nothing with them."""
    (folder / "conftest.py").write_text(PLAIN_PLUGIN, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p no:llmperf -p no:cacheprovider\n", encoding="utf-8")


def test_the_measuring_step_expands_nothing(tmp_path):
    plain_project(tmp_path)
    (tmp_path / "test_it.py").write_text(
        "def test_it(pytestconfig):\n    assert pytestconfig.getoption('--llmperf-engine') == 'vllm,a=$(touch pwned)'\n"
        "    assert pytestconfig.option.keyword == '`touch pwned` or test_it'\n",
        encoding="utf-8",
    )
    hostile = {
        "LLMPERF_SUITES": "test_it.py",
        "LLMPERF_ENGINE": "vllm,a=$(touch pwned)",
        "LLMPERF_EXTRA_ARGS": "-p no:xdist -k='`touch pwned` or test_it'",
    }
    done = run_step(0, tmp_path, GIVEN | hostile)
    # pytest itself refuses the expression, which is proof enough that it came through as one word.
    assert "`touch pwned` or test_it" in done.stdout + done.stderr
    assert not (tmp_path / "pwned").exists()


def test_the_measuring_step_has_pytests_exit_status(tmp_path):
    plain_project(tmp_path)
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert 0\n", encoding="utf-8")
    assert run_step(0, tmp_path, GIVEN | {"LLMPERF_SUITES": "test_it.py"}).returncode == 1
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    assert run_step(0, tmp_path, GIVEN | {"LLMPERF_SUITES": "test_it.py"}).returncode == 0


def test_an_interrupt_of_the_step_reaches_pytest(tmp_path):
    plain_project(tmp_path)
    (tmp_path / "test_it.py").write_text(
        "import pathlib, time\n\ndef test_it():\n    pathlib.Path('began').touch()\n    try:\n        time.sleep(60)\n"
        "    finally:\n        pathlib.Path('restored').touch()\n",
        encoding="utf-8",
    )
    with step_process(0, tmp_path, GIVEN | {"LLMPERF_SUITES": "test_it.py"}) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "began").exists() and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert (tmp_path / "restored").exists()
    assert process.returncode == 2


MEASURED = """
from pytest_llmperf import Workload

def test_decode(llmperf):
    llmperf.check(Workload(input_len=1, output_len=8))
"""


def test_the_action_with_the_plugin(tmp_path):
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_it.py").write_text(MEASURED, encoding="utf-8")
    ours = GIVEN | {
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the same plugins whether or not the package is installed
        "LLMPERF_EXTRA_ARGS": "-p pytest_benchmark.plugin -p pytest_llmperf.plugin",
        "LLMPERF_SUITES": "test_it.py",
    }
    for folder, engine, save, status in (
        ("saved", "sim:h200", "true", 0),
        ("same", "sim:h200", "false", 0),
        ("slower", "sim:h200,slowdown=1.3", "false", 1),
    ):
        these = {"LLMPERF_ENGINE": engine, "LLMPERF_SAVE": save, "LLMPERF_REPORT": folder}
        done = run_step(0, tmp_path, ours | these)
        assert done.returncode == status, done.stdout + done.stderr
        target = tmp_path / f"{folder}.md"
        run_step(1, tmp_path, {"LLMPERF_REPORT": folder, "GITHUB_STEP_SUMMARY": str(target)})
        text = target.read_text(encoding="utf-8")
        written = (tmp_path / folder / "summary.md").read_text(encoding="utf-8").splitlines(keepends=True)
        assert text == "".join(line for line in written if "](charts/" not in line), "no charts lie beside a job's"
        assert "](charts/" in "".join(written)
        assert ("| **regressed** |" in text) == (folder == "slower")
        assert "Simulated" in text


def test_the_measuring_step_refuses_an_old_report_folder(tmp_path):
    (tmp_path / "reports" / "ci").mkdir(parents=True)
    done = run_step(0, tmp_path, GIVEN)
    assert done.returncode == 1
    assert "exists already" in done.stderr


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "No report was written"),
        ({"journal.jsonl": "{}"}, "The run ended before its summary was written"),
        ({"results.json": "{}"}, "The run ended before its summary was written"),
        ({"summary.md": "# ours\n", "results.json": "{}"}, "# ours"),
    ],
)
def test_the_summary_step(tmp_path, files, expected):
    folder = tmp_path / "a report"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content, encoding="utf-8")
    target = tmp_path / "summary.txt"
    done = run_step(1, tmp_path, {"LLMPERF_REPORT": str(folder), "GITHUB_STEP_SUMMARY": str(target)})
    assert done.returncode == 0, done.stderr
    assert target.read_text(encoding="utf-8").startswith(expected)
