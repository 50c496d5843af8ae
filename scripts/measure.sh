#!/usr/bin/env bash
# The main job on vLLM's CPU build: measure a suite, save it as the baseline, gate a second run against it.
# Takes a few minutes; ends with exit status 0 when nothing became slower.
set -euo pipefail
. "$(dirname "$0")/setup.sh" cpu
# A processor shared with other machines is noisy: launches of the same thing were seen 1 to 16 % apart. Hence
# a tiny model, eager mode, several launches also for the second run, and a tolerance of 50 %.
suite=(suites --llmperf-engine vllm,enforce_eager=true -o llmperf_tolerance=50% --benchmark-disable)
baselines=(--llmperf-baselines "${LLMPERF_BASELINES:-reports/cpu/baselines}")
export HF_HUB_OFFLINE=1

if [ ! -d "${baselines[1]}" ]; then
  echo "== measuring, and saving the baseline"
  pytest "${suite[@]}" "${baselines[@]}" --llmperf-save --llmperf-report reports/cpu/saved
fi
echo "== measuring again, and gating against the baseline"
pytest "${suite[@]}" "${baselines[@]}" --llmperf-launches 3 --llmperf-report reports/cpu/gated
echo "results: reports/cpu/gated/results.json"
