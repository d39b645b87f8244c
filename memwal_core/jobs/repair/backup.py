"""Copies of what a repair touches, in one directory per run, each with a record of where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

import pyarrow as pa

from memwal_core.errors import ObjectNotFoundError
from memwal_core.format.paths import REPAIR_DIRECTORY
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.protocol import ObjectStore


class Backup:
    """The directory of one run, ``_mem_wal_repair/<time>-<id>/``. Nothing is written before it is needed.

    Args:
        now: When the run began, UTC.
        unique: Tells this run from any other; hexadecimal digits.
        concurrency: Objects copied at once.
    """

    def __init__(self, store: ObjectStore, now: datetime, unique: str, concurrency: int) -> None:
        """Choose the directory; nothing is written."""
        self.directory = f"{REPAIR_DIRECTORY}/{now:%Y%m%dT%H%M%SZ}-{unique[:8]}"
        self._store = store
        self._concurrency = concurrency
        self._records = 0

    @property
    def is_used(self) -> bool:
        """Whether anything was written."""
        return self._records > 0

    def copy(self, paths: Iterable[str]) -> dict[str, str]:
        """Copy objects, durably; return where each is now. One that is gone is left out."""
        wanted = sorted(paths)
        copies = map_concurrently(self._copy, wanted, self._concurrency)
        return {path: copy for path, copy in zip(wanted, copies, strict=True) if copy is not None}

    def copy_directory(self, prefix: str) -> dict[str, str]:
        """Copy all objects below a directory; see ``copy``."""
        return self.copy(info.path for info in self._store.list_objects(prefix))

    def rows(self, name: str, rows: pa.Table) -> str:
        """Keep rows as an Arrow stream, which a file is not: it takes another dictionary with each batch.

        Returns:
            Its path.
        """
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        path = f"{self.directory}/{name}.arrow"
        self._store.put_if_absent(path, sink.getvalue().to_pybytes())
        return path

    def record(self, name: str, document: Mapping[str, object]) -> str:
        """Write down a step before it is taken; return the path of the record."""
        self._records += 1
        path = f"{self.directory}/{self._records:04}-{name}.json"
        self._store.put_if_absent(path, json.dumps(dict(document), indent=2, default=str).encode())
        return path

    def _copy(self, path: str) -> str | None:
        target = f"{self.directory}/objects/{path}"
        try:
            self._store.put_if_absent(target, self._store.get(path))
        except ObjectNotFoundError:
            return None
        return target
