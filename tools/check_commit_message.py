"""Refuse a commit whose subject is too long or ends with a period; git calls it with the file of the message."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

SUBJECT_LIMIT = 72


def faults(message: str) -> list[str]:
    """Return what is wrong with the subject: the first line that is neither blank nor a comment of git's."""
    written = (line.rstrip() for line in message.splitlines() if line.strip() and not line.startswith("#"))
    subject = next(written, "")
    found = []
    if len(subject) > SUBJECT_LIMIT:
        found.append(f"the subject has {len(subject)} characters, at most {SUBJECT_LIMIT} are allowed")
    if subject.endswith("."):
        found.append("the subject ends with a period")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print the faults; return 1 if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("message", type=Path, help="file with the message")
    found = faults(parser.parse_args(arguments).message.read_text(encoding="utf-8"))
    for fault in found:
        print(f"commit refused: {fault}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
