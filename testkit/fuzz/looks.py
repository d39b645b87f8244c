"""What every case goes through: whatever reads a table without changing it, and a writer on a copy."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType

import httpx
from fastapi import FastAPI

from memwal_core.coordination.job_key import JobKey
from memwal_core.errors import MemwalError
from memwal_core.format.paths import JOURNAL_DIRECTORY, MEM_WAL_DIRECTORY
from memwal_core.ids import parse_region_id
from memwal_core.jobs.backup.plan import Journal
from memwal_core.jobs.context import OpenTable
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.web import create_app
from testkit.fuzz.tables import STOLEN
from testkit.tables.people import people
from testkit.tables.readable import keys_of

# One request at a time: threads cost more than what they would read.
_SETTINGS = Settings.model_validate({"storage": {"fsync": False, "retry_wait_s": 0, "concurrency": 1}})

Look = Callable[[Path], object]


class HarmError(AssertionError):
    """Hostile bytes did harm."""


def _open(path: Path) -> Table:
    return Table.open(str(path), settings=_SETTINGS)


def _openable(path: Path) -> Table:
    """Open as the doctor does: even if the newest version cannot be read."""
    return Table(OpenTable.at(str(path), settings=_SETTINGS, even_if_damaged=True))


def _status(path: Path) -> object:
    return json.dumps(_open(path).status().to_dict())


def _doctor(path: Path) -> object:
    return json.dumps(_openable(path).doctor(contents=True).to_dict())


def _scan(path: Path, consistency: str) -> object:
    rows = _open(path).to_arrow(consistency=consistency)
    rows.validate(full=True)
    if STOLEN in rows.column("name").to_pylist():
        raise HarmError("rows of another table were shown")
    return rows.num_rows


def _merge(path: Path) -> object:
    return json.dumps(_open(path).run(MergeRequest(dry_run=True)).to_dict())


def _collection(path: Path) -> object:
    return json.dumps(_open(path).run(GcRequest(dry_run=True)).to_dict())


def _registers(path: Path) -> object:
    """Read what jobs keep about themselves, each document by itself."""
    table = _openable(path)
    opened = table.opened
    for read in (
        lambda: opened.freezes.load(),
        lambda: table.history(),
        lambda: opened.ledger.may_run(JobKey("merge")),
    ):
        _tolerated(read)
    for key in opened.leases.known_keys():
        _tolerated(lambda key=key: opened.leases.read(key))  # type: ignore[misc]
    for journal in (path / JOURNAL_DIRECTORY).glob("[01]*.json"):
        _tolerated(lambda journal=journal: Journal.decode(journal.read_bytes(), journal.name))  # type: ignore[misc]
    return None


def _tolerated(read: Callable[[], object]) -> None:
    with suppress(MemwalError):
        read()


class _Source:
    """The one table that the page shows now."""

    table: RegisteredTable | None = None

    def registry(self) -> Registry | None:
        return Registry(tables=(self.table,) if self.table is not None else ())

    def open(self, table: RegisteredTable) -> Table:
        return _open(Path(table.uri))


@cache
def _page_of() -> tuple[_Source, FastAPI]:
    source = _Source()
    return source, create_app(source)


def _page_and_why(path: Path) -> object:
    regions = sorted(each.name for each in (path / MEM_WAL_DIRECTORY).iterdir() if not each.name.startswith("_"))
    _tolerated(lambda: _open(path).why(parse_region_id(regions[0])))
    return _page(path)


def _page(path: Path) -> object:
    source, app = _page_of()
    source.table = RegisteredTable(name="attacked", uri=str(path))

    async def ask() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://page") as client:
            answer = await client.get("/table?name=attacked")
        # What the page says of an error that nobody foresaw.
        if "the table cannot be shown" in answer.text:
            raise AssertionError(answer.text)
        return answer.status_code

    return asyncio.run(ask())


def _writer(path: Path) -> object:
    """Claim regions of a copy, which replays their WAL, and write a row to each."""
    copy = path.with_suffix(".scratch")
    shutil.copytree(path, copy)
    try:
        with _open(copy).writer(takeover="fence") as writer:
            writer.put(people(*range(8)))
            writer.flush()
    finally:
        shutil.rmtree(copy, ignore_errors=True)
    return None


_LOOKS: Mapping[str, Look] = MappingProxyType(
    {"status": _status, "doctor": _doctor, "merge": _merge, "garbage collection": _collection, "registers": _registers}
)
_IN_TURN: tuple[Mapping[str, Look], ...] = (
    {
        "scan": lambda path: _scan(path, "latest"),
        "lookup": lambda path: _open(path).lookup(keys_of(1, 20, 66, 1_000), consistency="durable").num_rows,
        "page": _page,
    },
    {
        "scan of what is durable": lambda path: _scan(path, "durable"),
        "count": lambda path: _open(path).count(),
        "page, and why": _page_and_why,
    },
)


def looks_of(turn: int) -> dict[str, Look]:
    """Return name -> what looks at a table; anything but an error of ours is a finding.

    All but the ways to read, and to ask why, look in every turn: those take turns, because every case costs the time of
    all its looks.
    """
    return {**_LOOKS, **_IN_TURN[turn % len(_IN_TURN)]}


READS_PAGES = frozenset({"doctor", "scan", "scan of what is durable", "count", "lookup", "merge", "writer"})
"""Looks that let Lance decode pages; the others must survive whatever these are."""

WRITING: Mapping[str, Look] = MappingProxyType({"writer": _writer})
"""The same, for files that only writers read."""
