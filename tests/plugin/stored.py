"""Baselines that a session has stored, changed as only a test may: a file of other content than it was given is refused."""

import json

from pytest_llmperf.baselines import digest_of


def rewrite(path, change):
    """Change the content of a stored baseline in place, and give the file the digest of that."""
    content = json.loads(path.read_text())
    del content["digest"]
    change(content)
    path.write_text(json.dumps(content | {"digest": digest_of(content)}))
