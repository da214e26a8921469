"""The files of the project, for the checks."""

from pathlib import Path

ROOT = Path(__file__).parent.parent


def read(path: str) -> str:
    """Return the text of a file of the project."""
    return (ROOT / path).read_text(encoding="utf-8")


def files(*patterns: str) -> list[Path]:
    """Return the files that match, sorted."""
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file())
