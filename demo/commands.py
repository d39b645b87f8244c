"""The commands of ``python -m demo`` and what their errors become."""

from __future__ import annotations

import logging
import sys

import typer

from demo.command import demo
from demo.stack.command import down, up
from memwal_core.cli.ending import show_error
from memwal_core.errors import MemwalError

app = typer.Typer(help="The demonstration of memwal_core.", pretty_exceptions_enable=False)
app.command("run")(demo)
app.command()(up)
app.command()(down)


@app.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    """Run the demonstration, or what the subcommand says."""
    if context.invoked_subcommand is None:
        demo()


def run() -> None:
    """Run the command that the process was started with; errors of the package become exit codes."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    try:
        app()
    except MemwalError as error:
        show_error(error)
        sys.exit(error.exit_code)
