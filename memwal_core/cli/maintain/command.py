"""The command: with an address one table, with a registry all of its tables, once or for ever."""

from __future__ import annotations

import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from memwal_core.cli.ending import end_process
from memwal_core.cli.job_command import job_command, parameters_of, request_from, run_job, summary_of
from memwal_core.cli.ok_when_nothing import may_find_nothing
from memwal_core.cli.options import as_json, parse_seconds, print_json
from memwal_core.cli.show import progress_shown, show_view
from memwal_core.clock import SystemClock
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.cycle.request import MaintainRequest
from memwal_core.jobs.quality.request import QualityGate

if TYPE_CHECKING:
    from memwal_core.fleet import FleetRequest, TableRound
    from memwal_core.registry import Registry

_log = logging.getLogger(__name__)
_TELLS = threading.Lock()

OneTable = Annotated[
    str, typer.Argument(help="Path or address of one table; not with --registry.", metavar="URI", show_default=False)
]
RegistryFile = Annotated[
    str, typer.Option("--registry", help="Maintain the tables of this registry file that are due.", metavar="FILE")
]
Every = Annotated[
    float | None,
    typer.Option(
        "--every",
        help="With --registry: go on, and look this often which tables are due: 60s, 5m, 1h.",
        parser=parse_seconds,
        metavar="TIME",
    ),
]
Only = Annotated[
    list[str] | None, typer.Option("--table", help="With --registry: only this table. Repeatable.", metavar="NAME")
]
Now = Annotated[
    bool, typer.Option("--now", help="With --registry: also tables that are not due; with --every at each look.")
]
Host = Annotated[str, typer.Option("--host", help="With --port: address to listen at.")]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="With --every: offer /metrics and /healthz here; 0 takes a free port.",
        metavar="PORT",
    ),
]  # fmt: skip
Grace = Annotated[
    float,
    typer.Option(
        "--grace",
        help="With --every: on SIGTERM, how long running jobs may go on before they are ended.",
        parser=parse_seconds,
        metavar="TIME",
    ),
]

_OF_FLEETS = {
    "registry": (RegistryFile, ""),
    "every": (Every, None),
    "table": (Only, None),
    "now": (Now, False),
    "host": (Host, "127.0.0.1"),
    "port": (Port, None),
    "grace": (Grace, 60.0),
}
_OF_SERVICES = {"port", "host", "grace"}
_OF_THE_REGISTRY = {
    "delete": "collect_garbage",
    "remove_versions": "remove_versions",
    "checks": "checks",
    "suites": "suites",
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for with a registry."""

    registry: str
    every: float | None
    table: list[str] | None
    now: bool
    host: str
    port: int | None
    grace: float

    def load(self) -> Registry:
        # Other commands do not wait for what only this one imports.
        from memwal_core.registry import read_registry  # noqa: PLC0415

        return read_registry(self.registry, is_followed=self.every is not None)


def _command() -> Callable[..., None]:
    """Return the function that Typer makes the command of: the job's own options, and those of fleets."""

    def command(uri: str, *, storage_option: list[str] | None, json: bool, **given: Any) -> None:  # noqa: ANN401
        fleet = {name: given.pop(name) for name in _OF_FLEETS}
        request = request_from(MaintainRequest, given)
        if bool(uri) == bool(fleet["registry"]):
            raise InvalidRequestError(
                "what to maintain is an address or a registry", remedy="give either URI or --registry FILE"
            )
        if uri:
            _refuse(
                [name for name, value in fleet.items() if value != _OF_FLEETS[name][1]], "add --registry, or leave out"
            )
            if request.suites and request.checks is QualityGate.OFF:
                raise InvalidRequestError(
                    "suites are run by checks, and none are asked for",
                    remedy=f"add --checks {QualityGate.MANDATORY} or {QualityGate.ADVISORY}, or leave out --suite",
                    suites=list(request.suites),
                )
            run_job(request, uri, storage_option, json=json, freezes=True)  # Its steps do.
        refused = [
            name for name in _OF_THE_REGISTRY if getattr(request, name) != MaintainRequest.model_fields[name].default
        ]
        if refused or storage_option:
            raise InvalidRequestError(
                "the registry and the environment say this for each table",
                remedy=f"set {', '.join(_OF_THE_REGISTRY.values())} in the registry, and storage options in the "
                "environment",
                options=[*refused, *(["storage_option"] if storage_option else [])],
            )
        _maintain_fleet(_Asked(**fleet), request, json=json)

    job = parameters_of(job_command(MaintainRequest))
    own = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        for name, (annotation, default) in _OF_FLEETS.items()
    ]
    table = inspect.Parameter("uri", inspect.Parameter.KEYWORD_ONLY, default="", annotation=OneTable)
    signature = inspect.Signature([table, *own, *(each for each in job if each.name != "uri")])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in signature.parameters.values()}
    command.__name__ = "maintain"
    command.__doc__ = (
        f"{summary_of(MaintainRequest)}\n\n"
        "With --registry: of all tables that are due, side by side; with --every again and again until SIGTERM, "
        "whatever single tables do.\n\n"
        f"Exit codes: 0 done or planned, 2 bad input, {MaintainRequest.info.exit_codes}. With --registry 6 if some "
        "tables have problems; with --every 0 once it was asked to end."
    )
    return command


def _refuse(names: list[str], remedy: str) -> None:
    if names:
        shown = ", ".join(f"--{name}" for name in names)
        raise InvalidRequestError("options do not fit together", remedy=f"{remedy} {shown}", options=names)


def _maintain_fleet(asked: _Asked, request: MaintainRequest, *, json: bool) -> None:
    # Other commands do not wait for what only this one imports.
    from memwal_core.fleet import FleetRequest  # noqa: PLC0415

    wanted = FleetRequest(
        tuple(asked.table or ()),
        due_only=not asked.now,
        dry_run=request.dry_run,
        ignore_pauses=request.ignore_pauses,
    )
    # A file or a name that cannot be used at the start is the caller's mistake.
    registry = asked.load()
    for name in wanted.names:
        registry.find(name)
    if asked.every is not None:
        _serve(asked, wanted, json=json)
    _refuse([name for name in sorted(_OF_SERVICES) if getattr(asked, name) != _OF_FLEETS[name][1]],
            "add --every, or leave out")  # fmt: skip
    _one_round(registry, wanted, json=json)


def _one_round(registry: Registry, wanted: FleetRequest, *, json: bool) -> None:
    from memwal_core.fleet import Fleet  # noqa: PLC0415
    from memwal_core.settings import load_settings  # noqa: PLC0415

    fleet = Fleet(settings=load_settings().fleet)
    with progress_shown("maintain", disable=json):
        report = fleet.maintain_tables(registry, wanted)
    if json:
        print_json(report.to_dict())
    else:
        show_view(report.view())
    end_process(report.exit_code, hangs=bool(fleet.running))


def _serve(asked: _Asked, wanted: FleetRequest, *, json: bool) -> None:
    from memwal_core.cli.maintain.exposition import exposition, service_health  # noqa: PLC0415
    from memwal_core.cli.serving import serve  # noqa: PLC0415
    from memwal_core.fleet import FleetService  # noqa: PLC0415
    from memwal_core.settings import load_settings  # noqa: PLC0415

    clock, every = SystemClock(), asked.every or 0.0
    settings = load_settings().fleet

    def tell(found: TableRound) -> None:
        stamp = f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"
        _tell(as_json({"at": stamp, **found.to_dict()}) if json else f"{stamp} {_line(found)}")

    # Told once, and not at each look.
    logging.getLogger("memwal_core.registry.load").setLevel(logging.CRITICAL)
    service = FleetService(asked.load, wanted, settings=settings, on_round=tell)
    server = None
    if asked.port is not None:
        server = serve(
            asked.host,
            asked.port,
            metrics=lambda: exposition(service.state, every),
            health=lambda: service_health(service.state, clock.monotonic(), max(every, settings.survey_deadline_s)),
        )
    ending = threading.Event()

    def end(*_: object) -> None:
        if ending.is_set():
            service.stop_now()
        ending.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    where = f", http://{asked.host}:{server.server_port}/metrics" if server is not None else ""
    sys.stderr.write(f"maintaining {asked.registry}, a look every {every:g} s{where}\n")
    service.start(every)
    ending.wait()
    working = ", ".join(service.state.working) or "no table"
    sys.stderr.write(f"asked to end; at work: {working}; up to {asked.grace:g} s, a second signal ends it sooner\n")
    ended = service.stop(asked.grace)
    if server is not None:
        server.shutdown()
    end_process(0, hangs=not ended or service.is_asking)


def _tell(line: str) -> None:
    """Write a line to standard output; a reader that is gone or a full disk ends no service, and loses this line alone.

    Not by ``sys.stdout``: after an error that writes nothing any more, and without a reader it ends the thread.
    """
    data = f"{line}\n".encode(errors="backslashreplace")
    try:
        with _TELLS:  # Many threads tell.
            while data:
                data = data[os.write(sys.stdout.fileno(), data) :]
    except OSError as error:
        _log.warning("standard output cannot be written (%s); it would say: %s", error.strerror, line)


def _line(found: TableRound) -> str:
    ended = found.outcome.value if found.outcome is not None else found.end.value
    following = f" ({found.uri}); next: {found.error['next']}" if found.error else ""
    # What native code says may have several lines.
    why = " ".join(f"{found.why}{following}".split())
    return f"{found.table}: {ended.replace('_', ' ')}, {found.seconds:.2f} s: {why}"


maintain = may_find_nothing(_command())
