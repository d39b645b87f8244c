"""LanceDB's own client in processes of its own: one that writes, and one that asks every kind of query."""

from __future__ import annotations

import random  # noqa: TID251 - the process has no sources injected; its seed comes from the test
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import pyarrow as pa

from memwal_core.errors import InternalError
from testkit.processes.start import LONGEST_WAIT_S, process_context, start_process

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("version", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
"""What every process writes and expects."""

_ROWS_PER_WRITE = 3
_FLUSH_EVERY = 8
_PAUSE_S = 0.005
_ALL = 10_000


def rows(keys: Sequence[int], version: int) -> pa.Table:
    """Return rows of one version: the tenant is the key's parity, the vector its number."""
    return pa.table(
        {
            "id": list(keys),
            "tenant": [f"t{key % 2}" for key in keys],
            "version": [version] * len(keys),
            "text": [f"row number{key} version{version}" for key in keys],
            "vector": [[float(key), 0.0] for key in keys],
        },
        schema=SCHEMA,
    )


@dataclass(frozen=True, slots=True)
class ClientSite:
    """A table of LanceDB.

    Attributes:
        database: Its address.
        name: The table's name there.
        storage_options: Of the object store.
    """

    database: str
    name: str = "docs"
    storage_options: Mapping[str, str] = field(default_factory=dict)

    @property
    def uri(self) -> str:
        """The table's address."""
        return f"{self.database}/{self.name}.lance"

    def open(self) -> Any:  # noqa: ANN401 - the client's types are not ours to repeat
        """Open the table as any application does; it looks for the newest version at each query."""
        import lancedb  # noqa: PLC0415 - only processes that use the client pay for it

        connection = lancedb.connect(
            self.database, storage_options=dict(self.storage_options), read_consistency_interval=timedelta(0)
        )
        return connection.open_table(self.name)


class ClientProcesses:
    """Writers and readers of one table, and what they have seen.

    Args:
        visible: Shared memory: the version of each key that every process has to see.
    """

    def __init__(self, visible: Any) -> None:  # noqa: ANN401 - shared memory has no public type
        """Begin with no process."""
        self._visible = visible
        self._running: list[tuple[ForkServerProcess, Connection]] = []

    def visible(self) -> dict[int, int]:
        """Return key -> version, of the keys that were flushed."""
        return {key: version for key, version in enumerate(self._visible) if version}

    def add(self, target: Callable[..., None], *arguments: object) -> None:
        """Start a process.

        Raises:
            InternalError: It did not begin in time.
        """
        process, connection = start_process(target, *arguments, self._visible, duplex=True)
        self._running.append((process, connection))
        if not connection.poll(LONGEST_WAIT_S):
            raise InternalError("a client did not begin", remedy="read its output")
        connection.recv()

    def stop(self) -> Counter[str]:
        """Let all end.

        Returns:
            Writes, and queries of each kind.

        Raises:
            InternalError: One ended with an error, or saw something else than it had to.
        """
        total: Counter[str] = Counter()
        for _, connection in self._running:
            with suppress(BrokenPipeError):  # It has ended, and what it said says why.
                connection.send("stop")
        for process, connection in self._running:
            try:
                said = connection.recv() if connection.poll(LONGEST_WAIT_S) else "nothing"
            except EOFError:
                said = "nothing"
            process.join(LONGEST_WAIT_S)
            if not isinstance(said, Counter) or process.exitcode != 0:
                raise InternalError("a client did not end well", remedy="read its output", said=said)
            total += said
        return total

    def kill(self) -> None:
        """End those that have not ended."""
        for process, connection in self._running:
            process.kill()
            process.join()
            connection.close()


@contextmanager
def client_processes(keys: int) -> Iterator[ClientProcesses]:
    """Run clients until the block ends.

    Args:
        keys: Keys are from 0 to this, exclusive.
    """
    processes = ClientProcesses(process_context().RawArray("q", keys))
    try:
        yield processes
    finally:
        processes.kill()


def write(site: ClientSite, regions: Sequence[Sequence[int]], seed: int, visible: Any, connection: Connection) -> None:  # noqa: ANN401
    """Upsert rows until told to stop; what is closed is flushed, and visible to every process.

    Args:
        site: The table.
        regions: The keys of each region that this process, and no other, writes.
        seed: Decides what is written when.
        visible: The version of each key that others have to see.
        connection: To the test.
    """
    rng = random.Random(seed)  # noqa: S311 - no secret
    table = site.open()
    connection.send("began")
    version = 0
    while not connection.poll(_PAUSE_S):
        written: dict[int, int] = {}
        region = rng.choice(regions)  # The client has one open at a time.
        for _ in range(_FLUSH_EVERY):
            version += 1
            keys = rng.sample(region, k=_ROWS_PER_WRITE)
            table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
                rows(keys, version)
            )
            written |= dict.fromkeys(keys, version)
        table.close_lsm_writers()
        for key, newest in written.items():
            visible[key] = newest
    connection.send(Counter(writes=version))


def ask(site: ClientSite, visible: Any, connection: Connection) -> None:  # noqa: ANN401
    """Ask every kind of query until told to stop, and say what a user must not see.

    Args:
        site: The table.
        visible: The version of each key that this process has to see.
        connection: To the test, which is told how many queries were asked, or what was wrong.
    """
    reader = _Reader(site.open(), visible)
    connection.send("began")
    problem = None
    while not connection.poll(_PAUSE_S) and problem is None:
        problem = reader.round()
    connection.send(problem or reader.asked)


class _Reader:
    def __init__(self, table: Any, visible: Any) -> None:  # noqa: ANN401
        self._table = table
        self._visible = visible
        self._merged = 0
        self.asked: Counter[str] = Counter()

    def round(self) -> str | None:
        """Ask each kind once and return what was wrong."""
        table = self._table
        lsm: dict[str, Callable[[], Any]] = {
            "scan": lambda: table.search(),
            "where": lambda: table.search().where("version > 0"),
            "vector": lambda: table.search([0.0, 0.0]),
            "text": lambda: table.search("row", query_type="fts", fts_columns="text"),
        }
        for kind, query in lsm.items():
            before = list(self._visible)
            found = query().limit(_ALL).to_arrow()
            if wrong := _wrong(found, before):
                return f"{kind}: {wrong}"
            self.asked[kind] += 1
        merged = table.count_rows()
        if merged < self._merged:
            return f"count: {merged} after {self._merged}"
        self._merged = merged
        self.asked["count"] += 1
        # Of one version: its two searches look for the newest one each, and may find the same row at two places.
        table.checkout(table.version)
        merged = table.count_rows()
        hybrid = table.search(query_type="hybrid").vector([0.0, 0.0]).text("row").use_lsm(False).limit(_ALL).to_arrow()
        table.checkout_latest()
        if len(set(hybrid["id"].to_pylist())) != hybrid.num_rows or hybrid.num_rows != merged:
            return f"hybrid: {hybrid.num_rows} rows, of {merged}"
        self.asked["hybrid"] += 1
        return None


def _wrong(found: pa.Table, visible: Sequence[int]) -> str | None:
    keys = found["id"].to_pylist()
    versions = dict(zip(keys, found["version"].to_pylist(), strict=True))
    if doubled := [key for key, times in Counter(keys).items() if times > 1]:
        return f"keys {doubled[:5]} more than once"
    for key, version in enumerate(visible):
        if version and versions.get(key, -1) < version:
            return f"key {key} has version {versions.get(key)}, at least {version} was flushed"
    return None
