"""Runbooks: one page per signal, reached from one, naming only commands and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import click
import pytest
import typer

from memwal_core.cli.app import app
from memwal_core.coordination.freeze import CAUSES
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.observe.signals import SIGNALS, Signal
from memwal_core.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`([^`\n]+)`")
VARIABLE = re.compile(r"\bMEMWAL_[A-Z0-9_]+\b")


def commands_in(text: str) -> Iterator[str]:
    """Yield every `memwal` command of a page, in blocks and in running text."""
    for language, block in FENCED.findall(text):
        if language == "bash":
            yield from (line.strip() for line in block.splitlines() if line.strip().startswith("memwal "))
    yield from (code for code in INLINE.findall(FENCED.sub("", text)) if code.startswith("memwal "))


def marked(page: Path) -> set[str]:
    """Return what a page has in code or in quotation marks, with the marks."""
    return set(re.findall(r'`[^`\n]+`|"[^"]+"', page.read_text()))


@cache
def known_commands() -> Mapping[str, click.Command]:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group) or hasattr(root, "commands")
    return root.commands


def problem_with(command: str) -> str | None:
    """Return why the command line would refuse a command; None if it takes it."""
    name, *arguments = shlex.split(command)[1:]
    known = known_commands().get(name)
    if known is None:
        return f"there is no command {name}"
    options = {option for parameter in known.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [argument for argument in arguments if argument.startswith("-") and argument not in options]
    return f"{name} has no option {unknown}" if unknown else None


@pytest.mark.parametrize("signal", list(Signal))
def test_signal_has_its_page(signal: Signal) -> None:
    assert (ROOT / SIGNALS[signal].page).is_file()


SUBJECTS = {
    **{signal.value: facts.page for signal, facts in SIGNALS.items()},
    **{cause.value: facts.runbook for cause, facts in CAUSES.items() if facts.runbook.startswith("docs/runbooks/")},
    "the maintenance record of the table cannot be read": "docs/runbooks/record-unreadable.md",
}
"""What leads to a page: a signal, the cause of a freeze, or an error."""


def test_every_page_is_that_of_a_signal_a_freeze_or_an_error() -> None:
    assert sorted(facts.page for facts in SIGNALS.values()) == sorted({facts.page for facts in SIGNALS.values()})
    assert sorted(set(SUBJECTS.values())) == [str(page.relative_to(ROOT)) for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_names_what_leads_to_it(page: Path) -> None:
    named = [subject for subject, leads_to in SUBJECTS.items() if leads_to.endswith(f"/{page.name}")]

    assert named
    assert [subject for subject in named if not {f"`{subject}`", f'"{subject}"'} & marked(page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_names_only_commands_and_options_that_exist(page: Path) -> None:
    found = list(commands_in(page.read_text()))

    assert found, "a page without a command helps nobody"
    assert [problem for command in found if (problem := problem_with(command))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_names_only_dags_and_bare_options_that_exist(page: Path) -> None:
    codes = INLINE.findall(FENCED.sub("", page.read_text()))
    dags = {f"memwal_{request.info.name}" for request in REQUESTS}
    root = typer.main.get_command(app)
    named = {shlex.split(command)[1] for command in commands_in(page.read_text())}
    options = {
        option for name in named for parameter in root.commands[name].params  # type: ignore[attr-defined]
        for option in (*parameter.opts, *parameter.secondary_opts)
    }  # fmt: skip

    assert {code for code in codes if re.fullmatch(r"memwal_[a-z]+", code)} - dags - {"memwal_core"} == set()
    assert {code.split()[0] for code in codes if code.startswith("--")} - options == set()


@pytest.mark.parametrize("command", ["memwal fix $TABLE", "memwal merge $TABLE --force", "memwal gc -x"])
def test_wrong_command_would_be_noticed(command: str) -> None:
    assert problem_with(command) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_names_only_settings_that_exist(page: Path) -> None:
    known = {
        f"MEMWAL_{section}__{name}".upper()
        for section, info in Settings.model_fields.items()
        for name in info.annotation.model_fields  # type: ignore[union-attr]
    }

    assert set(VARIABLE.findall(page.read_text())) - known == set()


def test_runbooks_named_by_errors_exist() -> None:
    sources = [path for top in ("memwal_core", "jobs", "dags", "plugins") for path in (ROOT / top).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"docs/runbooks/[\w-]+\.md", path.read_text())}

    assert named
    assert sorted(name for name in named if not (ROOT / name).is_file()) == []
