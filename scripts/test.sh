#!/usr/bin/env bash
# Sets up and runs every check of the project: lint, types, import rules, tests.
# usage: scripts/test.sh [--without-vllm] [--without-browser] [PYTEST ARGUMENTS]
set -euo pipefail
extras=cpu,dev,smollm2
browser="" # what is added to the marks of the tests that run
while :; do
  case "${1:-}" in
    --without-vllm) extras=dev ;;
    --without-browser) browser=" and not browser" ;;
    *) break ;;
  esac
  shift
done
. "$(dirname "$0")/setup.sh" "$extras"
if [ -z "$browser" ] && ! command -v chromium chromium-browser google-chrome google-chrome-stable >/dev/null; then
  # The page of a report is tested in it; where it cannot be installed those tests fail and say so.
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Chromium ..."
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends chromium; } >/dev/null ||
      echo "Chromium could not be installed; the tests of the page will fail (--without-browser leaves them out)." >&2
  fi
fi
ruff check .
ruff format --check .
mypy
lint-imports --no-cache | tail -n 6
if [ "$extras" != dev ]; then
  # A start is mostly imports, on one core at a time: two tests share what one would leave idle. None asserts a speed,
  # but a busy machine can run into a limit: what failed has to pass alone.
  pytest tests -m engine -n 2 --dist worksteal "$@" ||
    pytest tests -m engine --last-failed --last-failed-no-failures none "$@"
fi
# Some watch boards in real time, and beside two others may miss a beat of theirs: likewise.
pytest tests -m "not engine$browser" -n 3 --dist worksteal "$@" ||
  pytest tests -m "not engine$browser" --last-failed --last-failed-no-failures none "$@"
