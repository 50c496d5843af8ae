#!/usr/bin/env bash
# Sets up and runs every check of the project: lint, types, import rules, tests.
# usage: scripts/test.sh [--without-vllm] [PYTEST ARGUMENTS]
set -euo pipefail
extras=cpu,dev select=()
if [ "${1:-}" = --without-vllm ]; then
  shift
  extras=dev select=(-m "not engine")
fi
. "$(dirname "$0")/setup.sh" "$extras"
ruff check .
ruff format --check .
mypy
lint-imports --no-cache | tail -n 6
pytest tests "${select[@]}" "$@"
