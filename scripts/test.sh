#!/usr/bin/env bash
# Sets up and runs every check of the project: lint, types, import rules, tests.
# usage: scripts/test.sh [--without-vllm] [PYTEST ARGUMENTS]
set -euo pipefail
extras=cpu,dev,smollm2
if [ "${1:-}" = --without-vllm ]; then
  shift
  extras=dev
fi
. "$(dirname "$0")/setup.sh" "$extras"
ruff check .
ruff format --check .
mypy
lint-imports --no-cache | tail -n 6
if [ "$extras" != dev ]; then
  # Engines want the machine for themselves.
  pytest tests -m engine "$@"
fi
# Some watch boards in real time, and beside two others may miss a beat of theirs: what failed has to pass alone.
pytest tests -m "not engine" -n 3 --dist worksteal "$@" ||
  pytest tests -m "not engine" --last-failed --last-failed-no-failures none "$@"
