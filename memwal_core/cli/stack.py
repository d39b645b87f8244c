"""`memwal up` and `memwal down`: Airflow's servers on this machine, with a table to maintain."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import memwal_core
from memwal_core.clock import SystemClock
from memwal_core.demo.airflow import configure_spark, find_checkout, find_java
from memwal_core.demo.directory import DemoDirectory, claim_directory
from memwal_core.demo.sample import make_sample
from memwal_core.demo.stack import (
    free_port,
    load_stack,
    require_stopped,
    stack_environment,
    start_stack,
    stop_stack,
)
from memwal_core.rng import system_rng

Directory = Annotated[Path, typer.Option(help="Where everything of the stack is; emptied when it starts.")]
_DEFAULT = Path(".stack")


def up(
    directory: Directory = _DEFAULT,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port of the page; 0 = any free one.")] = 0,
) -> None:
    """Start the embedded stack: Airflow with its servers, SQLite, local Spark, and a table named orders.

    Prints address and login. Exit codes: 0 it runs, 2 it runs already or the directory is not ours, 4 a server did
    not come up.
    """
    console, clock, rng = Console(highlight=False), SystemClock(), system_rng()
    checkout = find_checkout(Path(memwal_core.__file__).parent)
    java_home = find_java(checkout, os.environ)
    require_stopped(DemoDirectory(directory.absolute()))
    claimed = claim_directory(directory)
    configure_spark(claimed)
    table = make_sample(claimed.root / "orders.lance")
    environment = stack_environment(claimed, checkout, java_home, os.environ, port=port or free_port(), rng=rng)
    console.print("starting Airflow, which takes half a minute", markup=False)
    stack = start_stack(claimed, environment, {"orders": table.uri}, clock, rng)
    console.print(f"address:  {stack.address}/plugin/memwal", markup=False, soft_wrap=True)
    console.print(f"login:    admin / {stack.password}", markup=False, soft_wrap=True)
    console.print(f"logs:     {claimed.logs}", markup=False, soft_wrap=True)
    console.print("next:     trigger memwal_merge for the table orders; 'make down' stops everything", markup=False)


def down(directory: Directory = _DEFAULT) -> None:
    """Stop the embedded stack; its table and logs stay.

    Exit codes: 0 it is stopped, 3 there is none.
    """
    console = Console(highlight=False)
    found = DemoDirectory(directory.absolute())
    stack = load_stack(found)
    stopped = stop_stack(found, SystemClock())
    console.print(f"stopped {stack.address}" if stack is not None else "no stack runs here", markup=False)
    sys.exit(0 if stopped else 3)
