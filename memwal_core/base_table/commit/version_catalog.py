"""The version catalog that a strict commit gives pylance: one version, once."""

from __future__ import annotations

import uuid
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import ConcurrentModificationError, TableVersionNotFoundError

from memwal_core.base_table.commit_attempt import Outcome, StrictCommit
from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    InternalError,
    MemwalError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY
from memwal_core.format.table_manifest import replace_mem_wal_entry
from memwal_core.storage import ObjectStore, StoreKind

_STAGING_SUFFIX_LENGTH = 1 + len(str(uuid.UUID(int=0)))


class NextVersionOnly(LanceNamespace):
    """The version catalog of one commit attempt: knows V, and accepts V+1 once.

    pylance calls it with dictionaries from its own threads while ``commit`` waits.
    """

    def __init__(self, store: ObjectStore, attempt: StrictCommit) -> None:
        """Keep the parts; nothing was asked yet."""
        self._store = store
        self._attempt = attempt
        self._manifests = ManifestFiles(store)
        self.outcome = Outcome.NOT_ASKED
        self.error: MemwalError | None = None
        self.staged_path: str | None = None

    def namespace_id(self) -> str:
        """Return a new id: equal ids share caches inside pylance, and attempts must not."""
        return f"memwal-strict-commit {self._attempt.transaction_id}"

    def list_table_versions(self, request: Any) -> Any:  # noqa: ANN401, ARG002 - pylance's signature
        """Return the version that was read, as if there were no other."""
        return {"versions": [self._described(self._attempt.read_version)]}

    def describe_table_version(self, request: Any) -> Any:  # noqa: ANN401
        """Return where a version is.

        Raises:
            TableVersionNotFoundError: It is nowhere.
        """
        try:
            return {"version": self._described(request["version"])}
        except MemwalError as error:
            raise TableVersionNotFoundError(str(error)) from error

    def create_table_version(self, request: Any) -> Any:  # noqa: ANN401
        """Publish the staged manifest as the next version.

        Raises:
            ConcurrentModificationError: Somebody else made the version.
            CommitUnknownError: The store did not say whether it took the manifest.
            MemwalError: Something else kept it from being published.
        """
        self.staged_path = f"{TABLE_VERSIONS_DIRECTORY}/{request['manifest_path'].rpartition('/')[2]}"
        try:
            size = self._publish(request["version"], self.staged_path)
        except ConflictError as error:
            self.outcome, self.error = Outcome.REFUSED, error
            raise ConcurrentModificationError(str(error)) from error
        except CommitUnknownError as error:
            self.outcome, self.error = Outcome.UNKNOWN, error
            raise
        except MemwalError as error:
            self.outcome, self.error = Outcome.FAILED, error
            raise
        self.outcome = Outcome.PUBLISHED
        path = request["manifest_path"][:-_STAGING_SUFFIX_LENGTH]
        return {"version": {"version": request["version"], "manifest_path": path, "manifest_size": size}}

    def _publish(self, version: int, staged_path: str) -> int:
        """Make the staged manifest the next version.

        Returns:
            Its size in bytes.

        Raises:
            ConflictError: Somebody else made the version.
            CommitUnknownError: The store did not say whether it took the manifest.
            InternalError: pylance staged something else than agreed.
        """
        if version != self._attempt.read_version + 1:
            raise ConflictError(
                "pylance moved the commit onto a newer version",
                remedy="read the table again and repeat the change",
                expected=self._attempt.read_version + 1,
                found=version,
            )
        staged = self._store.get(staged_path)
        if str(self._attempt.transaction_id).encode() not in staged:
            # Then two attempts could have equal bytes, and a lost race would look like a lost reply.
            raise InternalError("a staged manifest does not name its transaction", remedy="report this")
        data = replace_mem_wal_entry(staged, self._attempt.change_entry)
        final_path = staged_path[:-_STAGING_SUFFIX_LENGTH]
        try:
            self._store.put_if_absent(final_path, data)
        except UnavailableError as error:
            self._settle(final_path, data, error)
        return len(data)

    def _settle(self, final_path: str, data: bytes, doubt: UnavailableError) -> None:
        """Find out what became of a write that was not confirmed.

        Raises:
            ConflictError: Other bytes are there, so ours never were.
            CommitUnknownError: Nothing is there yet, or the store still does not answer.
        """
        try:
            found = self._store.get(final_path)
        except (UnavailableError, ObjectNotFoundError):
            raise CommitUnknownError(
                "the store did not confirm the new version",
                remedy="read the table before trying again; delete nothing",
                path=final_path,
                transaction_id=str(self._attempt.transaction_id),
            ) from doubt
        if found != data:
            raise ConflictError(
                "somebody else made the next version",
                remedy="read the table again and repeat the change",
                path=final_path,
            ) from doubt

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
