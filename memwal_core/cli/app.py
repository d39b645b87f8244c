"""The commands and what their errors become."""

from __future__ import annotations

import logging
import sys
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.cli.airflow import airflow
from memwal_core.cli.checkpoint import checkpoint
from memwal_core.cli.create import add_spec, create, enable
from memwal_core.cli.examine.checks import checks
from memwal_core.cli.examine.doctor import doctor
from memwal_core.cli.examine.explain import explain
from memwal_core.cli.examine.history import history
from memwal_core.cli.examine.status import status
from memwal_core.cli.examine.why import why
from memwal_core.cli.freeze import freeze, thaw
from memwal_core.cli.index import index
from memwal_core.cli.job_command import job_command
from memwal_core.cli.rows import count, head, lookup, schema
from memwal_core.cli.tables import tables
from memwal_core.cli.watch.command import watch
from memwal_core.errors import MemwalError
from memwal_core.jobs.catalog import REQUESTS
from memwal_core.redaction import log_redacted, redact, show_unexpected
from memwal_core.telemetry import telemetry

app = typer.Typer(
    help="Background maintenance for Lance MemWAL tables.", no_args_is_help=True, pretty_exceptions_enable=False
)
app.command()(tables)
app.command()(create)
app.command()(enable)
app.command("add-spec")(add_spec)
app.command()(schema)
app.command()(head)
app.command()(count)
app.command()(lookup)
app.command()(status)
for _request in REQUESTS:
    app.command(_request.info.name)(job_command(_request))
app.command()(checkpoint)
app.command()(freeze)
app.command()(thaw)
app.command()(checks)
app.command()(doctor)
app.command()(why)
app.command()(explain)
app.command()(history)
app.command()(watch)
app.add_typer(index, name="index")
app.add_typer(airflow, name="airflow")


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
    """Run the command that the process was started with; errors of the package become exit codes.

    Raises:
        SystemExit: Always, with the command's exit code.
    """
    log_redacted(logging.WARNING)
    try:
        with telemetry():
            app()
    except MemwalError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except Exception as error:  # noqa: BLE001 - whatever it is, its traceback goes out without secrets
        show_unexpected(error)
        sys.exit(1)


def show_error(error: MemwalError) -> None:
    """Print what happened, the facts and what to do next, on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    console.print(f"error: {error.what}", style="bold red", markup=False)
    for name, value in error.facts.items():
        console.print(redact(f"  {name}: {value}"), markup=False)
    console.print(f"next: {error.remedy}", style="bold", markup=False)
