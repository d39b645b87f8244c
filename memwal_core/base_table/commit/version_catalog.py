"""The version catalog through which every commit of ours to a base table goes.

pylance rebases a commit onto whatever others committed meanwhile, publishes it with Lance's own code, and syncs
nothing. Its extension point for external version catalogs is the way out: pylance stages the manifest and then
asks a namespace to make it a version. Ours syncs the files that the version names, decides what becomes of the
MemWAL index, and publishes by put-if-absent at the final path.

pylance takes any object with these methods for a namespace. Its base class is not used, because importing it
imports the client of a REST service, half a second in every process that commits.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from memwal_core.base_table.commit.durable import DurableFiles
from memwal_core.base_table.commit_attempt import Outcome
from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidRequestError,
    MemwalError,
    ObjectNotFoundError,
    StoreRefusedError,
    UnavailableError,
)
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY, version_of_manifest
from memwal_core.storage import ObjectStore, StoreKind
from memwal_core.storage.concurrent import run_two

_log = logging.getLogger(__name__)

TABLE_ID = ["base"]
_STAGING_SUFFIX_LENGTH = 1 + len(str(uuid.UUID(int=0)))

CommitRule = Callable[[int, bytes], bytes]
"""Returns the bytes to publish as a version for the staged ones; raises what keeps them from becoming it."""


class RefusedError(ConflictError):
    """The version about to be made is taken, or is not the one that was asked for. Read the table again."""


class VersionCatalog:
    """The versions of one table, and making the next one. pylance calls it from its own threads.

    Args:
        identity: Unlike that of any other catalog: equal ones share caches inside pylance.
        only: Show this version as if there were no other.
        before: Called while a staged manifest is read; what it raises keeps it from being published.

    Attributes:
        asked_version: The version that was asked for last; 0 if none was.
        outcome: What became of it.
        error: Why that version was not published; None if it was.
        unanswered: Why the last question about existing versions got no answer; None if it got one.
        published: The manifest that became a version last; empty if none did.
        staged_paths: Staged manifests that are not needed any longer.
    """

    def __init__(
        self,
        store: ObjectStore,
        durable: DurableFiles,
        rule: CommitRule,
        *,
        identity: str,
        only: int | None = None,
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """Keep the parts; nothing was asked yet."""
        self._store = store
        self._durable = durable
        self._rule = rule
        self._identity = identity
        self._only = only
        self._before = before
        self._manifests = ManifestFiles(store)
        self.asked_version = 0
        self.outcome = Outcome.NOT_ASKED
        self.error: MemwalError | None = None
        self.unanswered: MemwalError | None = None
        self.published = b""
        self.staged_paths: list[str] = []

    @property
    def client(self) -> Any:  # noqa: ANN401
        """The catalog as what pylance takes for a namespace."""
        return self

    def namespace_id(self) -> str:
        """Return the identity."""
        return f"memwal {self._identity}"

    def list_table_versions(self, request: Any) -> Any:  # noqa: ANN401 - pylance's signature
        """Return the versions that exist, the newest first."""
        with self._answering():
            return self._listed(request)

    def _listed(self, request: Any) -> dict[str, Any]:  # noqa: ANN401
        if self._only is not None:
            return {"versions": [self._described(self._only)]}
        names = (info.path.rpartition("/")[2] for info in self._store.list_objects(TABLE_VERSIONS_DIRECTORY))
        versions = sorted((found for found in map(version_of_manifest, names) if found is not None), reverse=True)
        return {"versions": [self._described(version) for version in versions[: request.get("limit")]]}

    def describe_table_version(self, request: Any) -> Any:  # noqa: ANN401
        """Return where a version is; ``ObjectNotFoundError`` if it is nowhere."""
        with self._answering():
            return {"version": self._described(request["version"])}

    def create_table_version(self, request: Any) -> Any:  # noqa: ANN401
        """Publish the staged manifest as a version, after everything that it names is durable.

        pylance rebases before it asks for a version, and gives up when it does not get it. It tells each failure as
        a doubt about the commit; ``outcome`` and ``error`` tell the truth.

        Raises:
            RefusedError: Another process made the version.
            CommitUnknownError: The store did not say whether the version was made.
            MemwalError: Something else kept it from being made.
        """
        version, path = request["version"], request["manifest_path"]
        self.asked_version = version
        staged_path = f"{TABLE_VERSIONS_DIRECTORY}/{path.rpartition('/')[2]}"
        self.staged_paths.append(staged_path)
        try:
            read = partial(self._staged, staged_path, request["manifest_size"])
            staged, _ = run_two(self._store.kind, read, self._before)
            data = self._rule(version, staged)
            self._durable.sync(version, data)
            self._publish(staged_path[:-_STAGING_SUFFIX_LENGTH], data)
        except RefusedError as error:
            self.outcome, self.error = Outcome.REFUSED, error
            raise
        except CommitUnknownError as error:
            self.outcome, self.error = Outcome.UNKNOWN, error
            self.staged_paths.remove(staged_path)
            raise
        except MemwalError as error:
            self.outcome, self.error = Outcome.FAILED, error
            raise
        self.outcome, self.error, self.published = Outcome.PUBLISHED, None, data
        final = path[:-_STAGING_SUFFIX_LENGTH]
        return {"version": {"version": version, "manifest_path": final, "manifest_size": len(data)}}

    def _staged(self, path: str, size_bytes: int) -> bytes:
        """Read a staged manifest, as long as pylance wrote it: what is cut off here would be the newest version."""
        data = self._store.get(path)
        if len(data) != size_bytes:
            raise UnavailableError(
                "the store returned a part of a staged manifest; nothing was published",
                remedy="try again, and find out what lies between this process and the store",
                path=path,
                expected_bytes=size_bytes,
                found_bytes=len(data),
            )
        return data

    def remove_staged(self) -> None:
        """Remove the staged manifests of attempts whose outcome is certain; what stays is collected as garbage."""
        while self.staged_paths:
            path = self.staged_paths.pop()
            try:
                self._store.delete(path)
            except MemwalError as error:
                _log.warning("a staged manifest was not removed [path=%s, error=%s]", path, error)

    def _publish(self, final_path: str, data: bytes) -> None:
        """Put the manifest where readers look for it.

        Raises:
            RefusedError: Another process made the version.
            CommitUnknownError: The store did not say whether it took it.
        """
        try:
            self._store.put_if_absent(final_path, data)
        except ConflictError as error:
            raise _taken(final_path) from error
        except UnavailableError as error:
            self._settle(final_path, data, error)

    def _settle(self, final_path: str, data: bytes, doubt: UnavailableError) -> None:
        """Find out what became of a write that was not confirmed.

        Raises:
            RefusedError: Other bytes are there.
            CommitUnknownError: Nothing is there yet, or the store still does not answer, or refuses to.
        """
        try:
            found = self._store.get(final_path)
        except (UnavailableError, StoreRefusedError, InvalidRequestError):
            raise CommitUnknownError(
                "the store did not confirm the new version",
                remedy="read the table before trying again; delete nothing",
                path=final_path,
                cause=doubt.what,
                reason=doubt.facts.get("reason"),
            ) from doubt
        if found != data:
            # Other bytes are there, so ours never were.
            raise _taken(final_path) from doubt
        if self._store.kind is StoreKind.LOCAL:
            self._sync_again(final_path, data)

    def _sync_again(self, final_path: str, data: bytes) -> None:
        """Make a manifest durable that is there, although the write of it was not confirmed."""
        try:
            self._store.put_if_absent(final_path, data)
        except MemwalError as error:
            raise CommitUnknownError(
                "the new version exists, but the disk did not confirm it",
                remedy="read the table before trying again; delete nothing",
                path=final_path,
            ) from error

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """Remember why there is no answer: pylance wraps the error, and calls it a refusal, or a doubt."""
        self.unanswered = None
        try:
            yield
        except ObjectNotFoundError:
            raise
        except MemwalError as error:
            self.unanswered = error
            raise

    def _described(self, version: int) -> dict[str, Any]:
        info = self._manifests.locate(version)
        return {
            "version": version,
            "manifest_path": self._key_of(info.path),
            "manifest_size": info.size_bytes,
            "e_tag": info.etag,
        }

    def _key_of(self, path: str) -> str:
        """Return a path as pylance's own object store names it: from the bucket or disk root."""
        uri = self._store.uri_of(path)
        if self._store.kind is StoreKind.LOCAL:
            return uri.lstrip("/")
        return uri.partition("://")[2].partition("/")[2]


def _taken(path: str) -> RefusedError:
    return RefusedError(
        "another process made the next version", remedy="read the table again and repeat the change", path=path
    )
