#!/usr/bin/env bash
# The main job on vLLM's CPU build: measure a suite, save it as the baseline, gate a second run against it.
# About 8 minutes the first time, most of it engine starts; ends with exit status 0 when nothing became slower.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu
# A processor shared with other machines is noisy: hence a tiny model, eager mode, and a tolerance of 50 %, for which one
# launch is enough as a rule; the gate takes up to 8 when it is not. The first token of a tiny model comes after a few milliseconds, which is the
# time of a handful of scheduling delays: it may take three times as long before anything is said.
tolerance=$'llmperf_tolerance=50%\nttft: 200%'
baselines=${LLMPERF_BASELINES:-reports/cpu/baselines}
suite=(suites/test_phases.py -W default --llmperf-engine=vllm,enforce_eager=true -o "$tolerance" --benchmark-disable)
suite+=("--llmperf-baselines=$baselines")
export HF_HUB_OFFLINE=1

if [ ! -d "$baselines" ]; then
  echo "== measuring, and saving the baseline: 5 engine launches"
  pytest "${suite[@]}" --llmperf-save --llmperf-report=reports/cpu/saved || {
    status=$?
    echo "The baseline was not saved as a whole; run this again, after: rm -r $baselines" >&2
    exit "$status"
  }
fi
echo "== measuring again, and gating against the baseline in $baselines: as many engine launches as it takes"
pytest "${suite[@]}" --llmperf-report=reports/cpu/gated || {
  status=$?
  echo "The gate failed. If other programs are busy, run it again when they are not; if they were when the baseline was" >&2
  echo "saved, save it anew: rm -r $baselines, and run this again" >&2
  exit "$status"
}
echo "results: reports/cpu/gated/results.json"
echo "to go on in this environment: . $venv/bin/activate"
