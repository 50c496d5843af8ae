"""Stored baselines, changed as only a test may: a file whose content does not fit its digest is refused."""

import json

from pytest_llmperf.baselines import digest_of


def rewrite(path, change):
    """Change the content of a stored baseline in place, and give the file the digest of that."""
    content = json.loads(path.read_text())
    del content["digest"]
    change(content)
    path.write_text(json.dumps(content | {"digest": digest_of(content)}))
