"""Numbered immutable versions of one document, of which the highest number counts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from memwal_core.errors import (
    CommitUnknownError,
    CorruptionError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.document import as_number, parse_document
from memwal_core.format.paths import (
    MAX_UINT64,
    VERSION_HINT_NAME,
    numbered_name,
    parse_numbered_name,
    version_hint_path,
)
from memwal_core.storage.limits import MAX_HINT_BYTES, MAX_REGISTER_BYTES
from memwal_core.storage.protocol import ObjectStore, StoreKind
from memwal_core.storage.translate import store_errors_translated

FIRST_VERSION = 1
_LOAD_ATTEMPTS = 10

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of the document; versions count from 1.

    ``hinted`` is the version that the hint named, 0 if it named none. A hint is written after its version, and the
    newest version is never deleted, so a higher one than ``version`` says that versions were lost.
    """

    version: int
    data: bytes
    hinted: int = field(default=0, compare=False)

    @property
    def is_hinted(self) -> bool:
        """Whether a search that begins at the hint finds this version first."""
        return max(self.hinted, FIRST_VERSION) >= self.version


class VersionedRegister:
    """A document that changes by adding the next version; the compare-and-swap of the project.

    Creating version n+1 proves that the document has not changed since version n. The hint file only
    shortens the search for the newest version and may be missing, old or wrong. The directory holds the
    versions and their hint, and nothing else.

    Delete old versions only with ``delete_before``: readers rely on the remaining versions being
    consecutive and on the hint pointing at one of them.
    """

    def __init__(self, store: ObjectStore, directory: str, suffix: str) -> None:
        self._store = store
        self._directory = directory
        self._suffix = suffix

    def latest(self, known: int = 0) -> Entry | None:
        """Return the newest version, or None if there is none.

        Two requests beyond reading the hint, plus one per version written since the hint; lists the
        directory only if the first version probed is missing. The hint is not read if a version is ``known``.
        """
        hinted = known or self.hinted_version()
        # Most registers without a hint are empty, and of the others nothing was deleted: that begins with a hint.
        read = partial(self._read_forward, hinted) if hinted else self._read_first
        for _ in range(_LOAD_ATTEMPTS):
            entry = read()
            if entry is not None:
                return replace(entry, hinted=hinted)
            found = self.versions()
            if not found:
                return None
            read = partial(self._read_forward, found[-1])
        raise UnavailableError(
            "the newest version was deleted again and again before it could be read",
            remedy="retry; if it persists, stop the program that deletes files in this directory",
            directory=self._directory,
            version=found[-1],
        )

    def read(self, version: int) -> bytes:
        """Return the content of one version; ``ObjectNotFoundError`` if it never existed or was deleted."""
        return self._store.get(self.path(version), MAX_REGISTER_BYTES)

    def exists(self, version: int) -> bool:
        """Return whether a version exists."""
        return self._store.head(self.path(version)) is not None

    def create(self, version: int, data: bytes, *, with_hint: bool = True) -> None:
        """Write one version, once and for all, then try to refresh the hint.

        Equal content that is already there counts as success (it is this call's own write whose reply was
        lost), so rivals must make their bytes differ. ``version`` is one more than the newest version that
        the caller has read. ``with_hint`` is False for a version that the caller will soon replace.

        Raises:
            ObjectExistsError: Another process wrote this version; its content stays. Read, then decide.
            CommitUnknownError: The version was written, but the history may have moved past it.
            UnavailableError: No reply; the version may or may not exist. Read it back, or call again with
                the same content.
        """
        self._store.put_if_absent(self.path(version), data)
        self._require_predecessor(version)
        if with_hint:
            self._write_hint(version)

    def prepare(self, data: bytes, name: str) -> Path | None:
        """Write on a local disk what may become a version, so that ``create_prepared`` takes no room; None elsewhere.

        Whoever does not use it removes it. ``name`` is unlike that of any other.
        """
        if self._store.kind is not StoreKind.LOCAL:
            return None
        staged = self._store.staging_directory(self._directory) / name
        with store_errors_translated("prepare", self._directory, self._store.uri):
            staged.write_bytes(data)
        return staged

    def create_prepared(self, version: int, prepared: Path) -> None:
        """Do what ``create`` does, on a full disk, too; errors as there."""
        self._store.put_file_if_absent(self.path(version), prepared)
        self._require_predecessor(version)
        self._write_hint(version)

    def versions(self) -> list[int]:
        """Return the existing versions, ascending, by listing the directory."""
        found = []
        for info in self._store.list_objects(self._directory):
            name = info.path.rpartition("/")[2]
            try:
                found.append(parse_numbered_name(name, self._suffix))
            except InvalidRequestError:
                if name != VERSION_HINT_NAME:
                    _log.debug("foreign object ignored [path=%s]", info.path)
        return sorted(found)

    def delete_before(self, version: int, *, before_each: Callable[[], None] | None = None) -> list[int]:
        """Delete all versions below a number, the oldest first, and return them, ascending.

        The hint is moved to the newest version first, and an interrupted deletion leaves consecutive
        versions, so that readers find the newest at any time.

        Args:
            version: From here on they stay; at least one below the newest must, so that a commit under way finds
                its predecessor. It may be missing itself, as two passes of a copy leave it.
            before_each: Called before the hint is moved and before each deletion; what it raises ends the
                deletion, for example when the caller's right to delete has expired.
        """
        newest = self.latest()
        existing = self.versions()
        if newest is None or not any(version <= number < newest.version for number in existing):
            raise InvalidRequestError(
                "versions can only be deleted below one that exists and is not the newest",
                remedy="keep at least the two newest versions",
                directory=self._directory,
                version=version,
                newest=newest.version if newest else None,
            )
        may_go_on = before_each if before_each is not None else _always
        may_go_on()
        self._store.put(version_hint_path(self._directory), hint_bytes(newest.version))
        obsolete = [number for number in existing if number < version]
        for number in obsolete:
            may_go_on()
            self._store.delete(self.path(number))
        return obsolete

    def path(self, version: int) -> str:
        """Return the path of a version."""
        return f"{self._directory}/{numbered_name(version, self._suffix)}"

    def _read_first(self) -> Entry | None:
        """Return the newest version of a register without a hint; None if its first version does not exist."""
        try:
            first = Entry(FIRST_VERSION, self.read(FIRST_VERSION))
        except ObjectNotFoundError:
            return None
        return self._read_forward(first.version + 1) if self.exists(first.version + 1) else first

    def _read_forward(self, start: int) -> Entry | None:
        """Return the last of the consecutive versions from ``start``; None if it is gone.

        A version is read after its successor was found missing. Deletion goes upwards, so a version that can still be
        read then had no successor that was deleted: however old the hint was, none is taken for the newest wrongly.
        """
        version = start
        while version < MAX_UINT64 and self.exists(version + 1):
            version += 1
        try:
            return Entry(version, self.read(version))
        except ObjectNotFoundError:
            return None

    def hinted_version(self) -> int:
        """Return the version that the hint names; 0 if there is no hint or it cannot be read."""
        try:
            hint = parse_document(self._store.get(version_hint_path(self._directory), MAX_HINT_BYTES))
            return as_number(hint["version"], at_least=FIRST_VERSION)
        except ObjectNotFoundError:
            return 0
        except (CorruptionError, ValueError, KeyError, TypeError):
            _log.warning("version hint is unreadable and is ignored [directory=%s]", self._directory)
            return 0

    def _require_predecessor(self, version: int) -> None:
        """Refuse a version whose place was free only because it had been deleted, and delete it again.

        A committer that slept until its target was written by others, superseded and deleted finds the
        place free. Since deletion goes upwards, a predecessor that still exists rules this out, and for a first
        version a hint that does not.
        """
        try:
            if version > FIRST_VERSION:
                is_next = self._store.head(self.path(version - 1)) is not None
            else:
                is_next = self._store.head(version_hint_path(self._directory)) is None  # Deletion begins with a hint.
            if is_next:
                return
            newest = max(self.versions(), default=version)
            is_late = newest > version and not self.exists(version + 1)
            if is_late:  # Whoever reads on from a version before it would take it for the newest.
                self._store.delete(self.path(version))
        except (StoreRefusedError, InvalidRequestError) as error:
            raise CommitUnknownError(
                "a version was written, and the store refused to tell whether it counts",
                remedy=f"{error.remedy}; then read the newest version and check whether it contains the change",
                directory=self._directory,
                version=version,
                cause=error.what,
                reason=error.facts.get("reason"),
            ) from error
        if is_late or newest > version > FIRST_VERSION:
            raise CommitUnknownError(
                "versions around this one were deleted while it was written, so it may not count",
                remedy="read the newest version and check whether it contains the change",
                directory=self._directory,
                version=version,
                newest=newest,
            )

    def _write_hint(self, version: int) -> None:
        try:
            self._store.put(version_hint_path(self._directory), hint_bytes(version))
        except MemwalError as error:
            # The version is committed; the next reader probes one step further.
            _log.warning("version hint not written [directory=%s, version=%d]: %s", self._directory, version, error)


def _always() -> None:
    """Let ``delete_before`` go on."""


def hint_bytes(version: int) -> bytes:
    """Return the content of a hint that names a version."""
    return json.dumps({"version": version}).encode()
