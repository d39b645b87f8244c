"""Fail when a module outgrows what one person can hold in mind.

Counts lines per Python file below the given paths. Over the limit fails, over the mark warns.
Generated protobuf code does not count.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CODE_LIMIT_LINES = 500
TEST_LIMIT_LINES = 600
WARN_ABOVE_LINES = 300


@dataclass(frozen=True, slots=True)
class Finding:
    """One module over a mark.

    Attributes:
        path: The file.
        lines: Its length.
        limit: The length at which it fails.
    """

    path: Path
    lines: int
    limit: int

    @property
    def fails(self) -> bool:
        """Whether the module is too long, not only long."""
        return self.lines > self.limit

    def __str__(self) -> str:
        """Say what to do about it."""
        verdict = "too long, split it" if self.fails else "long"
        return f"{self.path}: {self.lines} lines, {verdict} (limit {self.limit})"


def findings(roots: Iterable[Path]) -> Iterator[Finding]:
    """Yield the long modules below some directories (or among some files), in path order."""
    for root in roots:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            if "_pb2" in path.name:
                continue
            lines = len(path.read_text(encoding="utf-8").splitlines())
            limit = TEST_LIMIT_LINES if "tests" in path.parts else CODE_LIMIT_LINES
            if lines > min(limit, WARN_ABOVE_LINES):
                yield Finding(path, lines, limit)


def main(arguments: list[str] | None = None) -> int:
    """Print the findings; return 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    found = list(findings(parser.parse_args(arguments).paths))
    for finding in found:
        print(finding)
    return int(any(finding.fails for finding in found))


if __name__ == "__main__":
    sys.exit(main())
