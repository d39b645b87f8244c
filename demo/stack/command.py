"""`python -m demo up` and `python -m demo down`: Airflow's servers on this machine, with a table to maintain."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import memwal_core
from demo.airflow import configure_spark, find_checkout, find_java
from demo.directory import DemoDirectory, alone_at, claim_directory
from demo.stack.sample import make_sample
from demo.stack.stack import Stack, free_port, running_stack, served_under, stack_environment, start_stack, stop_stack
from memwal_core.clock import SystemClock
from memwal_core.rng import system_rng

Directory = Annotated[Path, typer.Option(help="Where everything of the stack is; emptied when it starts.")]
_DEFAULT = Path(".stack")


def up(
    directory: Directory = _DEFAULT,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page; 0 = any free one.")] = 0,
    path: Annotated[
        str, typer.Option(help="Serve everything under this path, for example /airflow, as behind a proxy.")
    ] = "",
) -> None:
    """Start the embedded stack: Airflow with its servers, SQLite, local Spark, and a table named orders.

    Prints address and login; if it runs already, that is all it does. What an earlier stack left running is ended
    first. Exit codes: 0 it runs, 2 only a part of it runs, another start or stop is under way, or the directory is
    not ours, 4 a server did not come up.
    """
    with alone_at(directory):
        _up(directory, port, path)


def _up(directory: Path, port: int, path: str) -> None:
    console, clock, rng = Console(highlight=False), SystemClock(), system_rng()
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    java_home = find_java(checkout, os.environ)
    place = DemoDirectory(directory.absolute())
    if (running := running_stack(place)) is not None:
        console.print("the stack runs already; nothing was changed", markup=False)
        _show(console, place, running)
        return
    if (left := stop_stack(place, clock)) is not None and left.others:
        console.print(f"ended {left.others} processes that an earlier stack left behind", markup=False)
    claimed = claim_directory(directory)
    configure_spark(claimed)
    table = make_sample(claimed.root / "orders.lance")
    environment = stack_environment(claimed, checkout, java_home, os.environ, port=port or free_port(), rng=rng)
    console.print("starting Airflow, which takes half a minute", markup=False)
    _show(console, claimed, start_stack(claimed, served_under(environment, path), {"orders": table.uri}, clock, rng))
    console.print(
        "next:     trigger memwal_merge for the table orders; 'make down' stops everything",
        markup=False,
        soft_wrap=True,
    )


def _show(console: Console, directory: DemoDirectory, stack: Stack) -> None:
    console.print(f"address:  {stack.address}/plugin/memwal", markup=False, soft_wrap=True)
    console.print(f"login:    admin / {stack.password}", markup=False, soft_wrap=True)
    console.print(f"logs:     {directory.logs}", markup=False, soft_wrap=True)


def down(directory: Directory = _DEFAULT) -> None:
    """Stop the embedded stack with everything that it started; its table and logs stay.

    Exit codes: 0 it is stopped, 3 there is none.
    """
    with alone_at(directory):
        stopped = stop_stack(DemoDirectory(directory.absolute()), SystemClock())
    if stopped is None:
        text = "no stack runs here"
    elif stopped.servers:
        text = f"stopped {stopped.address}" + (f" and {stopped.others} processes of its tasks" * bool(stopped.others))
    else:
        text = f"the servers had ended already; ended {stopped.others} processes that they left behind"
    Console(highlight=False).print(text, markup=False, soft_wrap=True)
    sys.exit(0 if stopped is not None else 3)
