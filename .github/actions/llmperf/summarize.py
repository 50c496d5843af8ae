"""The summary step of the action: the report's summary.md on standard output, or why there is none."""

import sys
from pathlib import Path


def without_images(markdown: str) -> str:
    """Without the lines of charts: no folder lies beside the summary of a job, nor beside a comment.

    A name cannot be taken for one: whatever acts in Markdown is escaped in names.
    """
    return "".join(line for line in markdown.splitlines(keepends=True) if "](charts/" not in line)


def summary(folder: Path) -> str:
    """Markdown for the report in ``folder``."""
    if (folder / "summary.md").is_file():
        return without_images((folder / "summary.md").read_text(encoding="utf-8"))
    if (folder / "results.json").is_file() or any(folder.glob("journal*.jsonl")):
        return (
            "The run ended before its summary was written; what it measured is in the report folder, of which "
            "`python -m pytest_llmperf report FOLDER` makes one.\n"
        )
    return "No report was written; the log of the measuring step says why.\n"


if __name__ == "__main__":
    print(summary(Path(sys.argv[1])), end="")
