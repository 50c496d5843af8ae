"""Where a baseline lies: names that are safe on every system, and differ whenever the tests do."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from pytest_llmperf.baselines.identity import Identity

__all__ = ["baseline_path", "find_elsewhere", "group_folder", "slug"]

_RESERVED = {"con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(1, 10))}
_LONGEST_NAME = 200
#: A name that ends like this could be another name's slug.
_DIGESTED = re.compile(r"-[0-9a-f]{8}$")


def slug(text: str) -> str:
    """A file name that is safe everywhere and differs whenever ``text`` does, also where case is ignored."""
    plain = re.sub(r"[^a-z0-9_.\[\]=+-]+", "-", text.lower()).strip("-.") or "x"
    if plain.partition(".")[0] in _RESERVED:  # with any ending: Windows takes con.json for the console as well
        plain = f"x-{plain}"
    if plain == text and len(plain) <= _LONGEST_NAME and not _DIGESTED.search(plain):
        return plain
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{plain[:_LONGEST_NAME].rstrip('-.')}-{digest}"


def _readable(text: str) -> str:
    """A folder name for hardware and models; not unique by itself, the identity inside the file is."""
    return re.sub(r"[^a-z0-9_.+-]+", "-", text.lower()).strip("-.")[:100] or "x"


def group_folder(root: Path, identity: Identity) -> Path:
    """The folder of all baselines of the same hardware, model and clock: ``<root>/<hardware>/<model>@<clock>``.

    The clock is that of the SMs, and that of the memory where it was locked.
    """
    hardware = _readable(identity.hardware)
    if identity.simulated:
        hardware = f"simulated-{hardware}"
    if identity.device_count > 1:
        hardware += f"-x{identity.device_count}"
    clock = "unlocked" if identity.clock_mhz is None else f"{identity.clock_mhz}mhz"
    if identity.memory_clock_mhz is not None:
        clock += f"-memory{identity.memory_clock_mhz}mhz"
    return root / hardware / f"{_readable(identity.model)}@{clock}"


def baseline_path(root: Path, identity: Identity, test: str) -> Path:
    """Where a test's baseline lies: ``<root>/<hardware>/<model>@<clock>/<suite>/<test>.json``.

    Args:
        root: The folder of all baselines.
        identity: What the baseline holds for.
        test: The test's id, such as ``suites/test_x.py::test_y[1]``.
    """
    return group_folder(root, identity) / within_group(test)


def within_group(test: str) -> Path:
    """Where in the folder of its group a test's baseline lies."""
    file, _, name = test.partition("::")
    # Not Path.suffix: a test file of another kind keeps its ending, so that x.py and x.txt stay apart.
    suite = [slug(part) for part in file.removesuffix(".py").split("/") if part not in ("", ".")]
    return Path(*suite, f"{slug(name)}.json")


def find_elsewhere(root: Path, test: str) -> list[Path]:
    """The baselines of the same test for other hardware, models or clocks, nearest names first."""
    inside = within_group(test)
    if not root.is_dir():
        return []
    return sorted(p / inside for p in root.glob("*/*") if (p / inside).is_file())
