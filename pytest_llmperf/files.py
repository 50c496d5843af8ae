"""Writing a file so that a reader sees the old one or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write through a temporary file beside ``path`` and a rename.

    What UTF-8 cannot hold (lone surrogates) is written escaped: no text can end a session here.

    Raises:
        OSError: the folder cannot be written; what was there is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".llmperf-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
