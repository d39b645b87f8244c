"""`memwal tables`: which tables there are to maintain, and their entries in a registry."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import AsJson, StorageOptions, options_for, print_json
from memwal_core.cli.show import show_grid
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.view import Grid
from memwal_core.settings import load_settings
from memwal_core.storage.options import environment_storage_options
from memwal_core.text import show_count

if TYPE_CHECKING:
    from memwal_core.registry.discovery import Discovery
    from memwal_core.registry.entries import Registration


@may_find_nothing
def tables(  # noqa: PLR0913 - one parameter for each option of the command
    uri: Annotated[
        str,
        typer.Argument(
            help="A directory, a bucket or a prefix of one, or a LanceDB database.", metavar="URI", show_default=False
        ),
    ],
    register: Annotated[
        str,
        typer.Option("--register", help="Add the tables to this registry file; what is there stays.", metavar="FILE"),
    ] = "",
    connection: Annotated[
        str, typer.Option("--connection", help="Airflow connection that new entries name.", metavar="NAME")
    ] = "",
    depth: Annotated[int, typer.Option("--depth", min=0, max=64, help="Levels of directories to go down.")] = 6,
    max_directories: Annotated[
        int, typer.Option("--max-directories", min=1, help="Directories to list at most.")
    ] = 10_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be registered.")] = False,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Find every MemWAL table below a directory, a bucket prefix or a LanceDB database; changes no table.

    Exit codes: 0 tables were found, 2 bad input, 3 there is none, 4 storage failure (try again), 6 something could
    not be looked at; what else was found is shown and registered.
    """
    # Other commands do not wait for what only this one imports.
    from memwal_core.registry.discovery import Bounds, discover  # noqa: PLC0415
    from memwal_core.registry.entries import register_tables  # noqa: PLC0415

    if (connection or dry_run) and not register:
        raise InvalidRequestError(
            "nothing is registered without --register", remedy="name the registry file with --register"
        )
    options = {**environment_storage_options(), **options_for(storage_option, uri)}
    found = discover(
        uri, storage_options=options or None, settings=load_settings(), bounds=Bounds(depth, max_directories)
    )
    uris = [table.uri for table in found.tables]
    entries = register_tables(register, uris, connection=connection, dry_run=dry_run) if register else None
    outcome = _outcome(found)
    if json:
        registered = {} if entries is None else {"registered": {"dry_run": dry_run, **entries.to_dict()}}
        print_json({"outcome": outcome.value, **found.to_dict(), **registered})
    else:
        _show(found, Console(highlight=False))
        if entries is not None:
            _show_entries(entries, register, dry_run=dry_run)
    sys.exit(outcome.exit_code)


def _outcome(found: Discovery) -> JobOutcome:
    if found.problems:
        return JobOutcome.PARTIAL
    return JobOutcome.DONE if found.tables else JobOutcome.NOTHING_TO_DO


def _show(found: Discovery, console: Console) -> None:
    plain = f", {show_count(len(found.plain), 'Lance table')} without MemWAL" if found.plain else ""
    console.print(f"{found.root}: {show_count(len(found.tables), 'MemWAL table')}{plain}", markup=False, soft_wrap=True)
    rows = tuple(
        (
            each.uri.removeprefix(f"{found.root}/"),
            f"{each.rows:,}",
            ", ".join(each.key) or "-",
            each.sharding,
            str(each.regions),
        )
        for each in found.tables
    )
    if rows:
        show_grid(Grid(("table", "rows", "key", "sharding", "regions"), rows), console)
    for each in found.problems:
        console.print(f"not looked at: {each.uri} ({each.what})", markup=False, soft_wrap=True)


def _show_entries(entries: Registration, register: str, *, dry_run: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    verb = "would be added to" if dry_run else "added to"
    for each in entries.added:
        console.print(f"{verb} {register}: {each.name}", markup=False)
    for uri in entries.known:
        console.print(f"registered already: {uri}", markup=False)
    for uri in entries.excluded:
        console.print(f"excluded by {register}: {uri}", markup=False)
