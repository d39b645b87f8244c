"""Lance's own writer in a process of its own, which tells what it was acknowledged."""

from __future__ import annotations

import random  # noqa: TID251 - the process has no sources injected; its seed comes from the test
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import lance
import pyarrow as pa

from memwal_core.errors import InternalError
from memwal_core.ids import RegionId
from testkit.processes.start import LONGEST_WAIT_S, process_context, start_process
from testkit.tables.people import people

_DELETE_EVERY = 4
_REOPEN_EVERY = 60


@dataclass(frozen=True, slots=True)
class NativeStream:
    """What the writer writes.

    Attributes:
        uri: A table of people with a MemWAL index.
        region_id: Its region; created if missing.
        storage_options: Of the object store.
        first_rows: The table has rows with keys from 0 to this, exclusive, when the writer begins.
        keys: Keys are drawn from 0 to this, exclusive.
        memtable_rows: Rows after which it flushes.
        pause_s: Between two writes.
        seed: Decides the keys.
    """

    uri: str
    region_id: RegionId
    storage_options: Mapping[str, str] | None = None
    first_rows: int = 0
    keys: int = 60
    memtable_rows: int = 60
    pause_s: float = 0.002
    seed: int = 1


class NativeWriterProcess:
    """The running writer.

    Args:
        process: The process.
        connection: To it.
        counter: Shared memory that has the number of its writes.
    """

    def __init__(self, process: ForkServerProcess, connection: Connection, counter: Any) -> None:  # noqa: ANN401
        """Keep the parts."""
        self._process = process
        self._connection = connection
        self._counter = counter

    def writes(self) -> int:
        """Return how many writes were acknowledged so far."""
        return int(self._counter.value)

    def stop(self) -> tuple[dict[int, str], int]:
        """Let it flush, close and end.

        Returns:
            Key -> value after all acknowledged writes, and the number of writes.

        Raises:
            InternalError: It did not end well.
        """
        self._connection.send("stop")
        said = self._connection.recv() if self._connection.poll(LONGEST_WAIT_S) else None
        self._process.join(LONGEST_WAIT_S)
        if said is None or self._process.exitcode != 0:
            self._process.kill()
            raise InternalError("the writer did not end well", remedy="read its output", said=said)
        rows, writes = said
        return rows, writes

    def kill(self) -> None:
        """End it, if it has not ended."""
        self._process.kill()
        self._process.join()
        self._connection.close()


@contextmanager
def native_writer_process(stream: NativeStream) -> Iterator[NativeWriterProcess]:
    """Run a writer until the block ends; ``stop`` tells what it wrote.

    Raises:
        InternalError: Nothing was acknowledged in time.
    """
    counter = process_context().RawValue("q", 0)
    process, ours = start_process(_write, stream, counter, duplex=True)
    writer = NativeWriterProcess(process, ours, counter)
    try:
        if not ours.poll(LONGEST_WAIT_S):
            raise InternalError("the writer did not begin", remedy="read its output", region_id=str(stream.region_id))
        ours.recv()
        yield writer
    finally:
        writer.kill()


def _write(stream: NativeStream, counter: Any, connection: Connection) -> None:  # noqa: ANN401
    rng = random.Random(stream.seed)  # noqa: S311 - no secret
    rows = {key: f"p{key}" for key in range(stream.first_rows)}
    writes = 0
    while not connection.poll():
        with _open(stream) as writer:
            for _ in range(_REOPEN_EVERY):
                writes += 1
                keys = rng.sample(range(stream.keys), k=5)
                if writes % _DELETE_EVERY == 0:
                    writer.delete(pa.table({"id": pa.array(keys, pa.int64())}))
                    for key in keys:
                        rows.pop(key, None)
                else:
                    writer.put(people(*keys, name=f"v{writes}"))
                    rows |= dict.fromkeys(keys, f"v{writes}")
                counter.value = writes
                if writes == 1:
                    connection.send("began")
                if connection.poll(stream.pause_s):
                    break
    connection.send((rows, writes))


def _open(stream: NativeStream) -> Any:  # noqa: ANN401 - Lance's writer has no types
    dataset = lance.dataset(stream.uri, storage_options=dict(stream.storage_options or {}) or None)
    return dataset.mem_wal_writer(
        str(stream.region_id), max_wal_flush_interval_ms=1, max_memtable_rows=stream.memtable_rows
    )
