"""One Spark application that maintains all tables of a registry that are due."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from memwal_core.errors import InvalidRequestError, MemwalError
from memwal_core.fleet import Fleet, FleetReport, FleetRequest
from memwal_core.native.arenas import limit_arenas
from memwal_core.redaction import log_redacted, show_unexpected
from memwal_core.registry import REGISTRY_VARIABLE, Registry, read_registry, require_registry
from memwal_core.settings import FleetSettings, load_settings
from memwal_core.spark.application import deliver, require_place
from memwal_core.spark.executors import SparkExecutors
from memwal_core.spark.session import LateSession
from memwal_core.table import Table
from memwal_core.telemetry import telemetry


def main(arguments: Sequence[str] | None = None) -> int:
    """Maintain the tables and return the exit code, that of ``FleetReport``.

    Ends the process itself, with that code, if a table hangs: native code in its thread could crash while the
    interpreter ends.

    Args:
        arguments: The process's own if None.
    """
    given = _parser().parse_args(sys.argv[1:] if arguments is None else list(arguments))
    limit_arenas()
    log_redacted(logging.INFO)
    hangs = False
    with telemetry():
        try:
            require_place(given.report)
            report, hangs = _round(given)
            code = report.exit_code
            deliver(report.to_dict(), given.report)
        except MemwalError as error:
            sys.stderr.write(f"error: {error}\n")
            code = error.exit_code
        except Exception as error:  # noqa: BLE001 - whatever it is, its traceback goes out without secrets
            show_unexpected(error)
            code = 1
    if hangs:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="maintain.py",
        description="Maintain all tables of a registry that are due, in one Spark session. Without --registry: one "
        "table, from a JSON document.",
    )
    parser.add_argument("--registry", metavar="FILE", help=f"the registry; that of {REGISTRY_VARIABLE} if empty")
    parser.add_argument(
        "--table",
        "--tables",
        dest="tables",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="only these; all by default",
    )
    parser.add_argument("--parallel", type=int, metavar="N", help="tables at once; MEMWAL_FLEET__PARALLEL by default")
    parser.add_argument(
        "--deadline-s", type=float, metavar="S", help="of one table; MEMWAL_FLEET__DEADLINE_S by default"
    )
    parser.add_argument("--now", action="store_true", help="also tables that are not due")
    parser.add_argument("--dry-run", action="store_true", help="only plan; changes nothing")
    parser.add_argument("--ignore-pauses", action="store_true", help="run jobs that pause because they kept failing")
    parser.add_argument("--report", default="", metavar="FILE", help="where the report goes as JSON; - is stdout")
    return parser


def _round(given: argparse.Namespace) -> tuple[FleetReport, bool]:
    """Return the report, and whether a table hangs."""
    settings = _settings(given)
    registry = _registry(given.registry)
    # A large table must not keep all slots from the others.
    session = LateSession("memwal maintain", {"spark.scheduler.mode": "FAIR"})

    def executors(table: Table) -> SparkExecutors:
        return SparkExecutors(session, table.base)

    fleet = Fleet(executors=executors, settings=settings)
    request = FleetRequest(
        tuple(given.tables), due_only=not given.now, dry_run=given.dry_run, ignore_pauses=given.ignore_pauses
    )
    try:
        report = fleet.maintain_tables(registry, request)
    finally:
        session.stop()
    for line in report.view().lines():
        sys.stderr.write(f"{line}\n")
    return report, bool(fleet.running)


def _settings(given: argparse.Namespace) -> FleetSettings:
    known = load_settings().fleet
    asked = {"parallel": given.parallel, "deadline_s": given.deadline_s}
    try:
        return FleetSettings(
            **{**known.model_dump(), **{name: each for name, each in asked.items() if each is not None}}
        )
    except ValidationError as error:
        first = error.errors()[0]
        option = str(first["loc"][0]).replace("_", "-")
        raise InvalidRequestError(
            "an option is out of bounds",
            remedy="correct it; docs/settings.md has the bounds",
            option=f"--{option}",
            problem=first["msg"],
            value=first["input"],
        ) from error


def _registry(path: str) -> Registry:
    return read_registry(path) if path else require_registry()
