"""The two libraries that charts are made with: whatever they raise is an error of the charts, and of nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_llmperf.errors import ChartError

__all__ = ["charting"]


@contextmanager
def charting(library: str, package: str) -> Iterator[None]:
    """Import and use a library within the block.

    A panic of an extension written in Rust is no ``Exception``, and what a broken installation raises when it is
    imported may be anything: all but what ends the process on purpose becomes one error.

    Args:
        library: What it is called.
        package: What pip calls it.

    Raises:
        ChartError: it is not installed, is broken, or cannot do what is asked of it; says how to install it again.
    """
    try:
        yield
    except (ChartError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # no chart is worth a report
        said = str(error).strip() or type(error).__name__
        raise ChartError(
            f"The charts cannot be drawn: {library}: {said.splitlines()[0].rstrip('.')}.",
            remedy=f"Install it again: pip install --force-reinstall {package}",
        ) from None
