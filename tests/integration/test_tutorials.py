"""Pages that show commands with their outputs are run as they stand, and print what they show.

``UPDATE_PAGES=1`` writes the outputs into the pages; look at the difference before you commit it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from memwal_core.cli.app import app

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOTHING_TO_DO = 3
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```$", re.M | re.S)
FILE = re.compile(r"Save this as `(\w+\.py)`")
# What differs from run to run, and what a page shows instead.
CHANGES = [
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "5f0c1b90-2d4e-4a61-9b8e-0c7d3a1e6f25"),
    (re.compile(r"\b\d+\.\d\d(?= s\b)"), "0.42"),
    (re.compile(r"(?<=│ )\d+\.\d\d +(?=│)"), "0.42    "),
    (re.compile(r"(?<=age )\d+(?= of)"), "3"),
    (re.compile(r" +$", re.M), ""),
]  # fmt: skip


def shown(text: str, directory: Path) -> str:
    """Return an output as a page shows it."""
    text = text.replace(str(directory), ".")
    for pattern, instead in CHANGES:
        text = pattern.sub(instead, text)
    return text.strip("\n")


def run(line: str) -> str:
    """Run one command of a page in this process, and return what it prints."""
    program, *arguments = shlex.split(line)
    if program == "memwal":
        ended = CliRunner().invoke(app, arguments)
        assert ended.exit_code in {0, NOTHING_TO_DO}, (line, ended.output, ended.exception)
        return ended.output
    assert program == "python"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if arguments[0] == "-c":
            exec(arguments[1], {})
        else:
            runpy.run_path(arguments[0])
    return printed.getvalue()


def played(text: str, directory: Path) -> str:
    """Return a page with the outputs that its commands have now."""

    def play(found: re.Match[str]) -> str:
        kind, body = found.groups()
        if kind == "python":
            named = FILE.findall(text[: found.start()])
            (directory / named[-1]).write_text(body)
            return found[0]
        commands = [line.removeprefix("$ ") for line in body.splitlines() if line.startswith("$ ")]
        outputs = [
            f"$ {line}\n{said}\n" if (said := shown(run(line), directory)) else f"$ {line}\n" for line in commands
        ]
        return f"```console\n{''.join(outputs)}```"

    return BLOCK.sub(play, text)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tutorial.md"])
def test_commands_of_a_page_print_what_it_shows(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    page = DOCS / name
    text = page.read_text()

    now = played(text, tmp_path)

    if "UPDATE_PAGES" in os.environ:
        page.write_text(now)
    assert now == text
