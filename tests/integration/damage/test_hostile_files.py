"""What somebody puts into a table's directory neither blocks nor ends a process, and leads to no other one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx
import pytest

from memwal_core.errors import MemwalError
from memwal_core.jobs.gc.request import GcRequest
from memwal_core.jobs.merge.request import MergeRequest
from memwal_core.jobs.snapshot.request import SnapshotRequest
from memwal_core.registry import RegisteredTable, Registry
from memwal_core.settings import Settings
from memwal_core.table import Table
from memwal_core.web import create_app
from testkit.tables.garbage import only_region
from testkit.tables.generations import RIGHT, GenerationTable, make_generation_table

pytestmark = pytest.mark.req("T6")

_PATIENCE_S = 120
"""Far above what a busy machine needs: what it stops would never end."""

Act = Callable[[str], object]


class _One:
    """A page's table."""

    def __init__(self, uri: str) -> None:
        self._tables = (RegisteredTable(name="people", uri=uri),)

    def registry(self) -> Registry:
        return Registry(tables=self._tables)

    def open(self, table: RegisteredTable) -> Table:
        return Table.open(table.uri)


def _page(uri: str) -> object:
    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(_One(uri)))
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return [await client.get(path) for path in ("/", "/table?name=people")]

    answers = asyncio.run(ask())
    assert [each.status_code for each in answers] == [200, 200]
    assert [each for each in answers if "cannot be shown" in each.text] == []  # an error that nobody foresaw
    return None


ACTS: Mapping[str, Act] = {
    "status": lambda uri: Table.open(uri).status(),
    "doctor": lambda uri: Table.open(uri).doctor(contents=True),
    "page": _page,
    "read": lambda uri: Table.open(uri).to_arrow(),
    "merge": lambda uri: Table.open(uri).run(MergeRequest(dry_run=True)),
    "gc": lambda uri: Table.open(uri).run(GcRequest(dry_run=True)),
}


def _ended(act: Act, uri: str) -> BaseException | None:
    """Return how an act ended, which it must."""
    outcome: list[BaseException | None] = []

    def run() -> None:
        try:
            act(uri)
        except BaseException as error:  # noqa: BLE001 - every kind is looked at
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    assert outcome, "it did not end"
    return outcome[0]


KINDS: Mapping[str, str] = {
    "base data": "data/*.lance",
    "base manifest": "_versions/*.manifest",
    "snapshot": "_indices/*/index.lance",
    "flushed data": "{flushed}/data/*.lance",
    "flushed manifest": "{flushed}/_versions/*.manifest",
    "WAL entry": "{region}/wal/*.lance",
    "region manifest": "{region}/manifest/*.binpb",
    "hint": "{region}/manifest/version_hint.json",
    "ledger": "_mem_wal/_ledger/**/*.json",
}
"""Kind of file -> pattern of its places; the newest is the first or last by its name."""


def _place(table: GenerationTable, kind: str) -> Path:
    flushed = table.directory()
    pattern = KINDS[kind].format(flushed=flushed, region=flushed.rpartition("/")[0])
    found = sorted(Path(table.table.uri).glob(pattern))
    return found[-1] if kind in {"WAL entry", "region manifest"} else found[0]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> GenerationTable:
    made = make_generation_table(str(tmp_path_factory.mktemp("hostile") / "people"), "ours")
    settings = Settings.model_validate({"index": {"inline_snapshot_threshold": 0, "snapshot_interval_s": 0}})
    Table.open(made.table.uri, settings=settings).run(SnapshotRequest())
    for act in ACTS.values():
        assert _ended(act, made.table.uri) is None
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blow", ["pipe", "endless", "elsewhere"])
def test_everything_ends_with_an_error_of_ours_or_without(
    template: GenerationTable, tmp_path: Path, kind: str, blow: str
) -> None:
    place = _place(template, kind)
    kept = tmp_path / "kept"
    place.rename(kept)
    try:
        if blow == "pipe":
            os.mkfifo(place)
        else:
            place.symlink_to("/dev/zero" if blow == "endless" else kept)
        ends = {name: _ended(act, template.table.uri) for name, act in ACTS.items()}
    finally:
        place.unlink(missing_ok=True)
        kept.rename(place)

    assert [error for error in ends.values() if not isinstance(error, MemwalError | None)] == []
    if kind.startswith(("base", "flushed")):
        assert ends["read"] is not None
    assert template.seen() == RIGHT


NAMES = {
    "base manifest": (b"name", b"na\0e"),
    "snapshot": (b"writer_epoch", b"writer\0epoch"),
    "flushed data": (b"name", b"na\0e"),
    "flushed manifest": (b"name", b"na\0e"),
}


def test_a_column_that_arrow_cannot_spell_ends_no_process(template: GenerationTable) -> None:
    """Lance aborted at the first batch, with all that ran in the process."""
    code = "import sys, tests.integration.damage.test_hostile_files as attack; attack.misspell(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, template.table.uri], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {kind: {} for kind in NAMES}
    assert template.seen() == RIGHT


def misspell(uri: str) -> None:
    """Print what ended in another way than with an error of ours, for each kind of file with a NUL in a name."""
    opened = Table.open(uri)
    table = GenerationTable(opened, only_region(opened))
    ends = {}
    for kind, change in NAMES.items():
        place = _place(table, kind)
        right = place.read_bytes()
        assert change[0] in right
        try:
            place.write_bytes(right.replace(*change))
            ends[kind] = _foreign_ends(uri)
        finally:
            place.write_bytes(right)
    print(json.dumps(ends))


def _foreign_ends(uri: str) -> dict[str, str]:
    ends = {name: _ended(act, uri) for name, act in ACTS.items()}
    return {name: repr(error) for name, error in ends.items() if not isinstance(error, MemwalError | None)}
