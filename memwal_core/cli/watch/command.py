"""The command: rounds until the process is asked to end."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from memwal_core.cli.ending import end_process
from memwal_core.cli.options import parse_seconds, parse_seconds_or_never
from memwal_core.clock import SystemClock

if TYPE_CHECKING:
    from memwal_core.observe.health import Health


_log = logging.getLogger(__name__)


def watch(  # noqa: PLR0913 - one parameter for each option of the command
    registry: Annotated[str, typer.Option("--registry", help="The registry file of the tables.", metavar="FILE")],
    every: Annotated[
        float,
        typer.Option(
            "--every", help="Time between the beginnings of two rounds: 60s, 5m.", parser=parse_seconds, metavar="TIME"
        ),
    ] = 60,
    deadline: Annotated[
        float,
        typer.Option(
            "--deadline", help="Time after which a table counts as not examined.", parser=parse_seconds, metavar="TIME"
        ),
    ] = 45,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=256, help="Tables examined at once.")] = 16,
    deep_every: Annotated[
        float,
        typer.Option(
            "--deep-every",
            help="Time between two deep looks at a table; 0: none.",
            parser=parse_seconds_or_never,
            metavar="TIME",
        ),
    ] = 600,
    host: Annotated[str, typer.Option("--host", help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 takes a free one.")] = 9464,
    once: Annotated[bool, typer.Option("--once", help="Look once, print the metrics, and end.")] = False,
) -> None:
    """Judge every registered table again and again, and offer the findings at /metrics and /healthz.

    Changes no table. Settings and credentials come from the environment, as for every command. SIGTERM ends it.

    Exit codes: 0 it was told to end, 2 bad input; with --once that of the worst table: 0 all is well, 6 something warns
    or a table could not be examined, 7 an operator must act now.
    """
    # Other commands do not wait for what only this one imports.
    from memwal_core.cli.serving import serve  # noqa: PLC0415
    from memwal_core.cli.watch.exposition import exposition, watch_health  # noqa: PLC0415
    from memwal_core.cli.watch.rounds import Watcher  # noqa: PLC0415
    from memwal_core.fleet.deep_looks import PATIENCE_S, DeepLooks  # noqa: PLC0415
    from memwal_core.opening import open_here  # noqa: PLC0415
    from memwal_core.registry import RegisteredTable, Registry, read_registry  # noqa: PLC0415

    def load() -> Registry:
        return read_registry(registry, is_followed=not once)

    def examine(entry: RegisteredTable) -> Health:
        return open_here(entry.uri, even_if_damaged=True).health()

    def look_deep(entry: RegisteredTable) -> Health:
        return open_here(entry.uri, even_if_damaged=True).doctor()

    first = load()  # A file that cannot be read at the start is the caller's mistake.
    clock = SystemClock()
    deep = DeepLooks(look_deep, clock, deep_every, patience_s=deadline if once else PATIENCE_S)
    loads = (lambda: first) if once else load
    watcher = Watcher(loads, examine, clock=clock, deadline_s=deadline, concurrency=concurrency, deep=deep)
    if once:
        fleet = watcher.look(wait_for_deep=True)
        typer.echo(exposition(fleet), nl=False)
        codes = [table.judgement.level.exit_code for table in fleet.tables if table.judgement is not None]
        code = max([0, *codes, *(6 for table in fleet.tables if table.problem or table.deep_problem)])
        end_process(code, hangs=watcher.is_looking)
    server = serve(
        host,
        port,
        metrics=lambda: exposition(watcher.fleet, every),
        health=lambda: watch_health(watcher.fleet, clock.monotonic(), max(every, deadline)),
    )
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    typer.echo(f"watching {registry} at http://{host}:{server.server_port}/metrics, every {every:g} s")
    sys.stdout.flush()
    while not ending.is_set():
        began = clock.monotonic()
        try:
            watcher.look()
        except Exception:  # noqa: BLE001 - whatever it is, it must not end the watch
            _log.exception("a round failed; the next one comes in its time")
        ending.wait(max(0.0, every - (clock.monotonic() - began)))
    server.shutdown()
    end_process(0, hangs=watcher.is_looking)
