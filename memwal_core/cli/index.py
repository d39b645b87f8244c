"""`memwal index`: which indexes MemTables maintain, and how one gives way to its successor."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, DryRun, StorageOptions, TableUri, open_table, print_json
from memwal_core.jobs.configure.run import ConfigureReport

index = typer.Typer(
    help="Change which indexes MemTables maintain; exit codes: 0 done, 2 bad input, 3 it was so already, 4 conflict "
    "or storage failure (try again), 5 something still needs what would go.",
    no_args_is_help=True,
    add_completion=False,
)

IndexName = Annotated[str, typer.Argument(help="An index of the base table.", metavar="NAME", show_default=False)]


@index.command()
@may_find_nothing
def maintain(
    uri: TableUri,
    name: IndexName,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Let MemTables maintain an index, from their next flush on.

    Exit codes: 0 done or planned, 2 bad input, 3 it was so already, 4 conflict or storage failure (try again).
    """
    _show(open_table(uri, storage_option).configuration.maintain_index(name, dry_run=dry_run), json=json)


@index.command()
@may_find_nothing
def release(
    uri: TableUri,
    name: IndexName,
    dry_run: DryRun = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Let MemTables maintain an index no longer; the base table's index stays.

    Exit codes: 0 done or planned, 2 bad input, 3 it was so already, 4 conflict or storage failure (try again).
    """
    _show(open_table(uri, storage_option).configuration.release_index(name, dry_run=dry_run), json=json)


@index.command()
@may_find_nothing
def replace(  # noqa: PLR0913 - one parameter for each option of the command
    uri: TableUri,
    old: Annotated[str, typer.Argument(help="The index that goes.", metavar="OLD", show_default=False)],
    new: Annotated[str, typer.Argument(help="Its successor.", metavar="NEW", show_default=False)],
    readers_moved: Annotated[
        bool, typer.Option("--readers-moved", help="All readers use the new index; nothing in the table can tell.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look for obstacles.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Remove an index once its successor is everywhere: the last step of a codebook migration.

    Exit codes: 0 done or planned, 2 bad input, 3 it was so already, 4 conflict or storage failure (try again),
    5 something still needs it.
    """
    configuration = open_table(uri, storage_option).configuration
    _show(configuration.replace_index(old, new, readers_moved=readers_moved, dry_run=dry_run), json=json)


def _show(report: ConfigureReport, *, json: bool) -> None:
    if json:
        print_json(report.to_dict())
    else:
        console = Console(highlight=False, soft_wrap=True)
        console.print(
            f"{report.outcome.value.replace('_', ' ')}: {report.change}, version {report.version}", markup=False
        )
        for obstacle in report.obstacles:
            console.print(f"  {obstacle}", markup=False)
    sys.exit(report.outcome.exit_code)
