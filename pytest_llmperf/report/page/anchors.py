"""Names of places on the page: the same for the same test in every run, so that a link may be kept."""

from __future__ import annotations

import hashlib
import re
import unicodedata

from pytest_llmperf.results import Finding

__all__ = ["finding_anchor", "metric_anchor", "slug", "test_anchor"]

#: What is longer makes no better link.
_LONGEST = 60


def slug(text: str) -> str:
    """Text as lower-case ASCII letters, digits and single dashes; different texts may become the same."""
    plain = unicodedata.normalize("NFKD", text[: 4 * _LONGEST]).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_LONGEST].rstrip("-")


def _distinct(kind: str, text: str) -> str:
    """The slug, with a digest of the whole text: no two texts share it, whatever their slugs drop."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return "-".join(part for part in (kind, slug(text), digest) if part)


def test_anchor(nodeid: str) -> str:
    """``suites/test_phases.py::test_decode[16]`` as ``test-suites-test-phases-py-test-decode-16-4fd3ad``."""
    return _distinct("test", nodeid)


def finding_anchor(finding: Finding) -> str:
    """``finding-sweet-spot-decode-batch-16``; the name is a slug already, unless somebody wrote the file by hand."""
    name = slug(finding.name)
    kind = f"finding-{slug(finding.kind)}"
    return f"{kind}-{name}" if name == finding.name else _distinct(kind, finding.name)


def metric_anchor(name: str) -> str:
    """``m-e2e-latency``."""
    return f"m-{slug(name)}" if re.fullmatch(r"[a-z0-9_]{1,60}", name) else _distinct("m", name)
