"""The schema metadata and global buffers of an index file, read with the table's own store.

pylance's file reader waits for storage without giving up Python's interpreter lock. Where several
threads flush at once, Lance's worker threads then wait for that lock, the reader waits for them, and
the process stands still; so nothing here goes through it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.format.bounded import BoundedFile
from memwal_core.format.footer import FILE_FOOTER_BYTES, PLACE, read_file_footer
from memwal_core.format.malformed import MalformedError
from memwal_core.format.messages import parse
from memwal_core.format.pb import lance_file_pb2, lance_index_pb2
from memwal_core.storage import ObjectStore

_REMEDY = "create the index again"


class IndexFile:
    """One Lance file of an index."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        """Read the footer and where the global buffers are.

        Raises:
            ObjectNotFoundError: There is no such file.
            CorruptionError: It is not a Lance file.
        """
        self._path = path
        info = store.head(path)
        if info is None:
            raise ObjectNotFoundError("a file of an index is gone", remedy=_REMEDY, path=path)
        with self._intact():
            self._file = BoundedFile(
                info.size_bytes, lambda start, length: store.get_range(path, start, length), FILE_FOOTER_BYTES
            )
            footer = read_file_footer(self._file.tail, info.size_bytes)
            places = self._file.range(footer.buffer_places, footer.buffers * PLACE.size)
        self._buffers = list(PLACE.iter_unpack(places))

    def buffer(self, number: int) -> bytes:
        """Return a global buffer.

        Raises:
            CorruptionError: There is no such buffer, or it lies outside of the file.
        """
        with self._intact():
            if not 0 <= number < len(self._buffers):
                raise MalformedError(f"it has {len(self._buffers)} global buffers, and none is number {number}")
            return self._file.range(*self._buffers[number])

    def tensor(self, number: int) -> bytes:
        """Return the numbers of a tensor in a global buffer.

        Raises:
            CorruptionError: There is none.
        """
        with self._intact():
            return parse(lance_index_pb2.Tensor(), self.buffer(number)).data

    def metadata(self, key: bytes) -> bytes:
        """Return a value of the schema metadata, which the first global buffer describes.

        Raises:
            CorruptionError: There is no such key.
        """
        with self._intact():
            values = parse(lance_file_pb2.FileDescriptor(), self.buffer(0)).schema.metadata
        name = key.decode()
        if name not in values:
            raise CorruptionError(
                "a file of an index lacks what describes it", remedy=_REMEDY, path=self._path, key=name
            )
        return values[name]

    @contextmanager
    def _intact(self) -> Iterator[None]:
        """Refuse a file whose bytes are not those of an index.

        Raises:
            CorruptionError: They are not.
        """
        try:
            yield
        except MalformedError as error:
            raise CorruptionError(
                "a file of an index cannot be read", remedy=_REMEDY, path=self._path, problem=str(error)
            ) from error
