"""The commands and what their errors become."""

from __future__ import annotations

import logging
import sys
from importlib import metadata
from typing import Annotated, Any

import typer

from memwal_core.cli.airflow import airflow
from memwal_core.cli.checkpoint import checkpoint
from memwal_core.cli.create import add_spec, create, enable
from memwal_core.cli.ending import USAGE_EXIT_CODE, asks_for_json, end_with, print_error
from memwal_core.cli.examine.checks import checks
from memwal_core.cli.examine.doctor import doctor
from memwal_core.cli.examine.explain import explain
from memwal_core.cli.examine.history import history
from memwal_core.cli.examine.status import status
from memwal_core.cli.examine.storage import storage
from memwal_core.cli.examine.why import why
from memwal_core.cli.freeze import freeze, thaw
from memwal_core.cli.index import index
from memwal_core.cli.job_command import job_command
from memwal_core.cli.maintain.command import maintain_command
from memwal_core.cli.nothing import may_find_nothing
from memwal_core.cli.rows import count, head, lookup, schema
from memwal_core.cli.tables import tables
from memwal_core.cli.watch.command import watch
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.redaction import log_redacted
from memwal_core.telemetry import telemetry

UsageError: Any = next(each for each in typer.BadParameter.__mro__ if each.__name__ == "UsageError")
"""Typer has it under no name of its own."""

_ROWS, _JOBS, _LOOKS = "Tables and their rows", "Jobs", "What is going on, and why"
_DECISIONS, _SETUP = "Decisions", "Setup"

app = typer.Typer(
    help="Background maintenance for Lance MemWAL tables.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.command(rich_help_panel=_ROWS)(may_find_nothing(tables))
app.command(rich_help_panel=_ROWS)(create)
app.command(rich_help_panel=_ROWS)(enable)
app.command("add-spec", rich_help_panel=_ROWS)(add_spec)
app.command(rich_help_panel=_ROWS)(schema)
app.command(rich_help_panel=_ROWS)(may_find_nothing(head))
app.command(rich_help_panel=_ROWS)(count)
app.command(rich_help_panel=_ROWS)(may_find_nothing(lookup))
app.command(rich_help_panel=_LOOKS)(status)
for _request in REQUESTS:
    _command = job_command(_request) if _request is not MaintainRequest else maintain_command()
    app.command(_request.info.name, rich_help_panel=_JOBS)(may_find_nothing(_command))
app.command(rich_help_panel=_JOBS)(may_find_nothing(checkpoint))
app.command(rich_help_panel=_DECISIONS)(freeze)
app.command(rich_help_panel=_DECISIONS)(may_find_nothing(thaw))
app.command(rich_help_panel=_LOOKS)(may_find_nothing(checks))
app.command(rich_help_panel=_LOOKS)(doctor)
app.command(rich_help_panel=_LOOKS)(why)
app.command(rich_help_panel=_LOOKS)(explain)
app.command(rich_help_panel=_LOOKS)(history)
app.command(rich_help_panel=_LOOKS)(watch)
app.add_typer(index, name="index", rich_help_panel=_DECISIONS)
app.add_typer(airflow, name="airflow", rich_help_panel=_SETUP)
app.add_typer(storage, name="storage", rich_help_panel=_SETUP)


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
            # Typer's own ending prints usage errors for people only.
            sys.exit(app(standalone_mode=not json_wanted) or 0)
    except UsageError as error:
        print_error(error, USAGE_EXIT_CODE, error.format_message(), "see the command's --help")
        sys.exit(USAGE_EXIT_CODE)
    except Exception as error:  # noqa: BLE001 - whatever it is, its traceback goes out without secrets
        sys.exit(end_with(error, json_wanted=json_wanted))
