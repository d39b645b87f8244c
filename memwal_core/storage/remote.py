"""A store behind obstore: S3, Google Cloud Storage, Azure, and memory."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.store import ObjectStore as Backend

from memwal_core.errors import (
    CorruptionError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.storage.address import Address, check_path, check_prefix, check_range, check_subtree, is_temporary
from memwal_core.storage.limits import MAX_OBJECT_BYTES, require_size
from memwal_core.storage.protocol import ObjectInfo, ObjectPart, StoreKind
from memwal_core.storage.retrying import Retrier
from memwal_core.storage.translate import store_errors_translated

if TYPE_CHECKING:
    from obstore import ObjectMeta

_Result = TypeVar("_Result")
_LIST_PAGE = 1000
_PART_BYTES = 8 << 20
_MAX_PARTS = 10_000
_PARTS_AT_ONCE = 4


class RemoteStore:
    """Objects in a bucket, or in the memory of this process.

    Every request is tried again while the store is unavailable; obstore's own retries are switched off.
    Conditional writes read what is there before they are repeated, because the write whose reply was lost
    may have landed. ``pylance_options`` is called at each use, so that temporary credentials are fresh.
    Large objects go through ``make_uploader``'s backend, which repeats each part by itself.
    """

    def __init__(
        self,
        address: Address,
        backend: Backend,
        make_uploader: Callable[[], Backend],
        pylance_options: Callable[[], Mapping[str, str]],
        retrier: Retrier,
    ) -> None:
        self._address = address
        self._uri = address.uri
        self._backend = backend
        self._make_uploader = make_uploader
        self._pylance_options = pylance_options
        self._retrier = retrier
        self._staging: Path | None = None

    def __repr__(self) -> str:
        """Leave out the options, which may hold secrets."""
        return f"RemoteStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """The root, without a final slash."""
        return self._uri

    @property
    def kind(self) -> StoreKind:
        """Where the bytes are stored."""
        return self._address.kind

    @property
    def storage_options(self) -> Mapping[str, str]:
        """The options pylance needs; they may hold secrets, so never log them."""
        return self._pylance_options()

    def uri_of(self, path: str) -> str:
        """Return the address of an object or directory."""
        return f"{self._uri}/{check_path(path)}"

    def get(self, path: str, max_bytes: int = MAX_OBJECT_BYTES) -> bytes:
        """Read a whole object."""
        return self._read("get", path, lambda key: self._whole(key, max_bytes))

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Read a part; less than ``length`` where the object ends before."""
        check_range(path, start, length)
        if length == 0:
            return self.get_range(path, 0, 1)[:0]  # obstore refuses empty ranges; a missing object is still an error.
        try:
            return self._read(
                "get_range", path, lambda key: bytes(obstore.get_range(self._backend, key, start=start, length=length))
            )
        except ObjectNotFoundError:
            raise
        except InvalidRequestError:
            found = self.head(path)
            if found is None or start < found.size_bytes:
                raise
            return b""

    def head(self, path: str) -> ObjectInfo | None:
        """Describe an object, or return None if it does not exist."""
        try:
            return self._read("head", path, lambda key: _info(obstore.head(self._backend, key)))
        except ObjectNotFoundError:
            return None

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Describe all objects below a directory, page by page; one that fails is asked for again."""
        directory = check_prefix(prefix)
        stream: Iterator[Sequence[ObjectMeta]] | None = None
        last: str | None = None

        def page() -> Sequence[ObjectMeta] | None:
            nonlocal stream
            asked, stream = stream, None  # After an error, the rest is listed anew.
            with self._translated("list_objects", directory):
                asked = asked or iter(
                    obstore.list(self._backend, prefix=directory or None, offset=last, chunk_size=_LIST_PAGE)
                )
                found = next(asked, None)
            stream = asked
            return found

        while found := self._retrier.read(page, f"{self._uri}/{directory}"):
            last = found[-1]["path"]
            yield from (_info(meta) for meta in found if not is_temporary(meta["path"]))

    def list_directories(self, prefix: str) -> list[str]:
        """Return the names of the directories directly below a directory, sorted."""
        directory = check_prefix(prefix)

        def attempt() -> list[str]:
            with self._translated("list_directories", directory):
                found = obstore.list_with_delimiter(self._backend, prefix=directory or None)["common_prefixes"]
            return sorted(name for name in (path.rpartition("/")[2] for path in found) if not is_temporary(name))

        return self._retrier.read(attempt, f"{self._uri}/{directory}")

    def require_files(self, directories: Collection[str]) -> None:
        """Do nothing: object stores hold nothing but objects."""
        for directory in directories:
            check_subtree(directory)

    def put(self, path: str, data: bytes) -> None:
        """Write, replacing what is there."""
        self._retried("put", path, lambda key: obstore.put(self._backend, key, data, use_multipart=False))

    def put_if_absent(self, path: str, data: bytes) -> None:
        """Write only if the object does not exist."""
        check_path(path)
        is_repeat = False

        def attempt() -> None:
            nonlocal is_repeat
            begun, is_repeat = is_repeat, True
            try:
                if not begun or not self._holds(path, data):
                    self._create(path, data)
            except (StoreRefusedError, InvalidRequestError) as error:
                if not begun:
                    raise
                # The write before it may have landed, or land later.
                raise UnavailableError(
                    "the store did not answer a write, and then refused the look whether it landed",
                    remedy=error.remedy,
                    **{**error.facts, "operation": "put_if_absent", "cause": error.what},
                ) from error

        self._retrier.write(attempt, self.uri_of(path))

    def put_parts_if_absent(self, path: str, parts: Sequence[ObjectPart]) -> None:
        """Write only if the object does not exist, as one request."""
        self.put_if_absent(path, b"".join(parts))

    def put_file_if_absent(self, path: str, source: Path) -> None:
        """Upload a prepared file if the object does not exist, then remove the file."""
        check_path(path)
        with self._translated("put_file_if_absent", path):
            data = source.read_bytes()
        self.put_if_absent(path, data)
        with self._translated("put_file_if_absent", path):
            source.unlink(missing_ok=True)

    def put_large(self, path: str, pieces: Iterable[bytes], size_bytes: int) -> None:
        """Upload in parts, if the object does not exist when this begins; parts that fail are repeated."""
        if self._is_complete(path, size_bytes):
            return
        part_bytes = max(_PART_BYTES, -(-size_bytes // _MAX_PARTS))
        try:
            with self._translated("put_large", path):
                self._upload(path, pieces, part_bytes)
        except UnavailableError:
            if not self._is_complete(path, size_bytes):
                raise

    def link(self, path: str, source: str) -> bool:
        """Return False: object stores have no links."""
        check_path(path)
        check_path(source)
        return False

    def delete(self, path: str) -> None:
        """Remove an object; one that is already gone counts as success."""
        with suppress(ObjectNotFoundError):
            self._retried("delete", path, lambda key: obstore.delete(self._backend, key))

    def delete_directory(self, prefix: str) -> int:
        """Remove all objects below a directory and return how many there were."""
        directory = check_subtree(prefix)
        keys = [entry.path for entry in self.list_objects(directory)]

        def attempt() -> None:
            with self._translated("delete_directory", directory), suppress(FileNotFoundError):
                obstore.delete(self._backend, keys)

        if keys:
            self._retrier.write(attempt, f"{self._uri}/{directory}")
        return len(keys)

    def sync_directory(self, prefix: str) -> None:
        """Do nothing: what a remote store has acknowledged is durable."""
        check_subtree(prefix)

    def sync_objects(self, paths: Collection[str]) -> None:
        """Do nothing: what a remote store has acknowledged is durable."""
        for path in paths:
            check_path(path)

    def staging_directory(self, path: str) -> Path:
        """Return a directory in the system's temporary space, removed with this store."""
        check_path(path)
        if self._staging is None:
            with self._translated("staging_directory", path):
                self._staging = Path(tempfile.mkdtemp(prefix="memwal-"))
            weakref.finalize(self, shutil.rmtree, self._staging, ignore_errors=True)
        return self._staging

    def _translated(self, operation: str, path: str) -> AbstractContextManager[None]:
        return store_errors_translated(operation, path, self._uri)

    def _once(self, operation: str, path: str, request: Callable[[str], _Result]) -> _Result:
        with self._translated(operation, path):
            return request(path)

    def _retried(self, operation: str, path: str, request: Callable[[str], _Result]) -> _Result:
        check_path(path)
        return self._retrier.write(lambda: self._once(operation, path, request), self.uri_of(path))

    def _read(self, operation: str, path: str, request: Callable[[str], _Result]) -> _Result:
        check_path(path)
        return self._retrier.read(lambda: self._once(operation, path, request), self.uri_of(path))

    def _whole(self, key: str, max_bytes: int) -> bytes:
        found = obstore.get(self._backend, key)  # The content comes with the next call.
        require_size(key, self._uri, found.meta["size"], max_bytes)
        return bytes(found.bytes())

    def _is_complete(self, path: str, size_bytes: int) -> bool:
        """Return whether the object exists; ``ObjectExistsError`` if it has another size."""
        found = self.head(path)
        if found is not None and found.size_bytes != size_bytes:
            raise ObjectExistsError(
                "an object of another size is already there",
                remedy="find out which program wrote it before deciding anything",
                path=path,
                store=self._uri,
                size_bytes=size_bytes,
                found_bytes=found.size_bytes,
            )
        return found is not None

    def _upload(self, path: str, pieces: Iterable[bytes], part_bytes: int) -> None:
        """Send parts as they come; an error, also of ``pieces``, ends the upload, and the store forgets its parts."""
        uploader = self._make_uploader()
        try:
            # Not as an iterator to ``put``: obstore panics where that asks a store for its next piece.
            with obstore.open_writer(uploader, path, buffer_size=part_bytes, max_concurrency=_PARTS_AT_ONCE) as upload:
                for piece in pieces:
                    upload.write(piece)
        except FileNotFoundError as error:
            # A repeated request to complete it, whose first reply was lost, finds no upload.
            raise UnavailableError(
                "the upload is gone, because it was completed, or ended by somebody else",
                remedy="try again",
                path=path,
                store=self._uri,
            ) from error

    def _create(self, path: str, data: bytes) -> None:
        """Write once; an object that holds the data already counts as success."""
        try:
            self._once("put_if_absent", path, lambda key: obstore.put(self._backend, key, data, mode="create"))
        except ObjectExistsError as error:
            if not self._holds(path, data):
                # A rival's upload was under way, or its object is gone again.
                raise UnavailableError(
                    "a conditional write was refused although the object does not exist",
                    remedy="try again",
                    path=path,
                    store=self._uri,
                ) from error

    def _holds(self, path: str, data: bytes) -> bool:
        """Return whether the object exists and holds the data; ``ObjectExistsError`` if it holds other bytes."""
        try:
            found = self._once("get", path, lambda key: self._whole(key, len(data)))
        except ObjectNotFoundError:
            return False
        except CorruptionError:
            found = b""  # It is larger.
        if found != data:
            raise ObjectExistsError(
                "other bytes are already there",
                remedy="read them before deciding anything",
                path=path,
                store=self._uri,
            )
        return True


def _info(meta: ObjectMeta) -> ObjectInfo:
    return ObjectInfo(path=meta["path"], size_bytes=meta["size"], modified=meta["last_modified"], etag=meta["e_tag"])
