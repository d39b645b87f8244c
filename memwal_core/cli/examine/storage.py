"""`memwal storage`: whether a store can hold tables."""

from __future__ import annotations

from typing import Annotated

import typer

from memwal_core.cli.options import AsJson, StorageOptions, options_for, print_json
from memwal_core.storage.opening import open_store
from memwal_core.storage.probe import probe_conditional_put, race_conditional_puts

_FOLDER = "_memwal_probe"

storage = typer.Typer(help="Find out whether a store can hold tables.", no_args_is_help=True, add_completion=False)


@storage.callback()
def _group() -> None:
    """Keep the name of the one command."""


@storage.command()
def probe(
    uri: Annotated[
        str, typer.Argument(help="A path, or an address of a bucket and prefix.", metavar="URI", show_default=False)
    ],
    endpoint: Annotated[
        list[str] | None,
        typer.Option("--endpoint", help="An S3 endpoint of the same bucket; repeatable: clients take turns."),
    ] = None,
    clients: Annotated[int, typer.Option("--clients", min=2, max=64, help="How many clients race.")] = 8,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=10000, help="How often they race.")] = 20,
    storage_option: StorageOptions = None,
    json: AsJson = False,
) -> None:
    """Race writes of one new object through several clients: one must win. Leaves nothing behind.

    Exit codes: 0 the store can hold tables, 2 bad input or it must not, 4 it did not answer.
    """
    options = options_for(storage_option, uri)
    places = [{**options, "aws_endpoint": each} for each in endpoint or ()] or [options]
    stores = [open_store(uri, storage_options=places[number % len(places)]) for number in range(clients)]
    for store in stores[: len(places)]:
        probe_conditional_put(store, _FOLDER)
    race_conditional_puts(stores, _FOLDER, rounds)
    if json:
        print_json({"uri": stores[0].uri, "clients": clients, "rounds": rounds, "endpoints": len(places), "ok": True})
    else:
        typer.echo(f"{stores[0].uri}: of {clients} clients that raced {rounds} times, one won each time")
