"""The help of every command: shown as it is written, with the codes that the command ends with."""

from __future__ import annotations

import re

import pytest
from rich.text import Text
from typer.testing import CliRunner

from memwal_core.cli.app import app
from testkit import commands as shell

NAMES = ["", "merge", "index", "index maintain"]
COMMANDS = {" ".join(path): command for path, command in shell.commands().items()}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_loses_nothing_to_markup(name: str) -> None:
    """The type of a time was shown as `timestamp`, which there is not: Rich took the unit in brackets for a style."""
    command = COMMANDS[name]
    texts = [command.help or "", *(getattr(each, "help", None) or "" for each in command.params)]

    assert [text for text in texts if Text.from_markup(text).plain != text.replace(r"\[", "[")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_the_exit_codes(name: str) -> None:
    said = " ".join((COMMANDS[name].help or "").split())

    assert re.search(r"Exit codes: 0 [^.]*\b2 bad input", said), said


@pytest.mark.parametrize("name", NAMES)
def test_help_has_its_short_name(name: str) -> None:
    asked = CliRunner().invoke(app, f"{name} -h")

    assert (asked.exit_code, "Usage" in asked.stdout) == (0, True)
    assert asked.stdout == CliRunner().invoke(app, f"{name} --help").stdout
