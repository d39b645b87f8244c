"""The commands and what their errors become."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from memwal_core.cli.ending import (
    INTERRUPTED_EXIT_CODE,
    TERMINATED_EXIT_CODE,
    USAGE_EXIT_CODE,
    Terminated,
    asks_for_json,
    end_with,
    print_error,
)
from memwal_core.cli.job_command import job_command
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.jobs.request import JobRequest
from memwal_core.redaction import log_redacted
from memwal_core.telemetry import telemetry

UsageError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError")
"""Typer has it under no name of its own."""

_PANELS = ("Tables and their rows", "What is going on, and why", "Jobs", "Decisions", "Setup")
_ROWS, _LOOKS, _JOBS, _DECISIONS, _SETUP = _PANELS

_PLACES = {
    "tables": (_ROWS, "memwal_core.cli.tables:tables"),
    "create": (_ROWS, "memwal_core.cli.create:create"),
    "enable": (_ROWS, "memwal_core.cli.create:enable"),
    "add-spec": (_ROWS, "memwal_core.cli.create:add_spec"),
    "schema": (_ROWS, "memwal_core.cli.rows:schema"),
    "head": (_ROWS, "memwal_core.cli.rows:head"),
    "count": (_ROWS, "memwal_core.cli.rows:count"),
    "lookup": (_ROWS, "memwal_core.cli.rows:lookup"),
    "status": (_LOOKS, "memwal_core.cli.examine.status:status"),
    "checks": (_LOOKS, "memwal_core.cli.examine.checks:checks"),
    "doctor": (_LOOKS, "memwal_core.cli.examine.doctor:doctor"),
    "why": (_LOOKS, "memwal_core.cli.examine.why:why"),
    "explain": (_LOOKS, "memwal_core.cli.examine.explain:explain"),
    "history": (_LOOKS, "memwal_core.cli.examine.history:history"),
    "watch": (_LOOKS, "memwal_core.cli.watch.command:watch"),
    "maintain": (_JOBS, "memwal_core.cli.maintain.command:maintain"),
    "checkpoint": (_JOBS, "memwal_core.cli.checkpoint:checkpoint"),
    "freeze": (_DECISIONS, "memwal_core.cli.freeze:freeze"),
    "thaw": (_DECISIONS, "memwal_core.cli.freeze:thaw"),
    "index": (_DECISIONS, "memwal_core.cli.index:index"),
    "airflow": (_SETUP, "memwal_core.cli.airflow:airflow"),
    "storage": (_SETUP, "memwal_core.cli.examine.storage:storage"),
}
"""Where commands are; those of the other jobs are made from their requests."""


class _Commands(Mapping[str, Any]):
    """The commands by name, each imported when it is asked for: imports are most of what a command's start costs."""

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - Typer's classes have no public name
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        names = dict.fromkeys((*_jobs(), *_PLACES))
        return iter(sorted(names, key=lambda name: _PANELS.index(_panel(name))))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Group(TyperGroup):
    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        super().__init__(**given)
        self.commands = _Commands()  # type: ignore[assignment]


@cache
def _command(name: str) -> Any:  # noqa: ANN401
    if name in _PLACES:
        module, _, attribute = _PLACES[name][1].partition(":")
        found = getattr(import_module(module), attribute)
    else:
        found = may_find_nothing(job_command(_jobs()[name]))
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        found = alone
    made: Any = typer.main.get_command(found)
    made.name, made.rich_help_panel = name, _panel(name)
    return made


def _panel(name: str) -> str:
    return _PLACES[name][0] if name in _PLACES else _JOBS


def _jobs() -> Mapping[str, type[JobRequest]]:
    from memwal_core.jobs.catalog import REQUESTS  # noqa: PLC0415 - most commands start without it

    return {each.info.name: each for each in REQUESTS}


app = typer.Typer(
    cls=_Group,
    help="Background maintenance for Lance MemWAL tables.",
    context_settings={"help_option_names": ["--help", "-h"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memwal {metadata.version('memwal-core')} (pylance {metadata.version('pylance')})")
        raise typer.Exit


@app.callback()
def _root(
    _shown: Annotated[
        bool,
        typer.Option("--version", help="Show the versions of memwal and pylance.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Background maintenance for Lance MemWAL tables."""


def run() -> None:
    """Run the command line of the process; errors of the package become exit codes, and JSON if that was asked for.

    Raises:
        SystemExit: Always, with the command's exit code.
    """
    log_redacted(logging.WARNING)
    json_wanted = asks_for_json(sys.argv[1:])
    try:
        with telemetry():
            try:
                # Typer's own ending prints usage errors for people only.
                code = app(standalone_mode=not json_wanted) or 0
                if code == INTERRUPTED_EXIT_CODE:  # What Typer makes of Ctrl-C.
                    raise KeyboardInterrupt
                sys.exit(code)
            finally:
                if sys.stdout is not None:  # As it is where a shell closed it.
                    sys.stdout.flush()  # While errors of it can still be told.
    except UsageError as error:
        error.show()
        print_error(error, USAGE_EXIT_CODE, error.format_message(), "see the command's --help")
        sys.exit(USAGE_EXIT_CODE)
    except (KeyboardInterrupt, typer.Abort, Terminated) as error:
        code = TERMINATED_EXIT_CODE if isinstance(error, Terminated) else INTERRUPTED_EXIT_CODE
        if json_wanted:
            print_error(error, code, "the command was interrupted", "run it again; what it did stands")
        sys.exit(code)
    except Exception as error:  # noqa: BLE001 - whatever it is, its traceback goes out without secrets
        sys.exit(end_with(error, json_wanted=json_wanted))
