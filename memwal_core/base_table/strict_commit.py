"""A compare-and-swap commit: version V+1 is made from version V, or nothing is.

pylance rebases a commit onto whatever others committed meanwhile, even without retries, and for
the MemWAL index that silently overwrites newer merge progress. Its extension point for external
version catalogs is the way out: pylance stages the manifest and then asks a namespace to make it
the next version. Ours refuses any version but V+1, puts the new MemWAL index into the staged
manifest and publishes it by put-if-absent at its final path. Rows, deletions and progress of one
operation so become visible together.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import lance
from lance_namespace import LanceNamespace
from lance_namespace.errors import ConcurrentModificationError, TableVersionNotFoundError

from memwal_core.base_table.manifest_files import ManifestFiles
from memwal_core.base_table.table_manifest import MemWalEntry, replace_mem_wal_entry
from memwal_core.base_table.translate import translated
from memwal_core.errors import (
    CommitUnknownError,
    ConflictError,
    InternalError,
    MemwalError,
    ObjectNotFoundError,
    UnavailableError,
)
from memwal_core.storage import ObjectStore, StoreKind
from memwal_core.storage.layout import TABLE_VERSIONS_DIRECTORY

_TABLE_ID = ["base"]
_STAGING_SUFFIX_LENGTH = 1 + len(str(uuid.UUID(int=0)))


@dataclass(frozen=True, slots=True)
class StrictCommit:
    """What to commit.

    Attributes:
        read_version: V, the version that everything here was derived from.
        operation: A ``lance.LanceOperation``.
        change_entry: New MemWAL index entry for the present one.
        transaction_id: Makes this attempt's bytes unlike those of any other; never used twice.
        message: Shown in the table's history.
    """

    read_version: int
    operation: Any
    change_entry: Callable[[MemWalEntry], MemWalEntry]
    transaction_id: uuid.UUID
    message: str


class _Outcome(Enum):
    NOT_ASKED = "pylance gave up before it asked for the version"
    FAILED = "the new index could not be made; nothing was published"
    REFUSED = "somebody else made the version"
    PUBLISHED = "our bytes are the version"
    UNKNOWN = "the store did not say whether it took our bytes"


class _NextVersionOnly(LanceNamespace):
    """The version catalog of one commit attempt: knows V, and accepts V+1 once.

    pylance calls it with dictionaries from its own threads while ``commit`` waits.
    """

    def __init__(self, store: ObjectStore, attempt: StrictCommit) -> None:
        self._store = store
        self._attempt = attempt
        self._manifests = ManifestFiles(store)
        self.outcome = _Outcome.NOT_ASKED
        self.error: MemwalError | None = None
        self.staged_path: str | None = None

    def namespace_id(self) -> str:
        # Equal ids share caches inside pylance; attempts must not.
        return f"memwal-strict-commit {self._attempt.transaction_id}"

    def list_table_versions(self, request: Any) -> Any:  # noqa: ANN401, ARG002 - pylance's signature
        return {"versions": [self._described(self._attempt.read_version)]}

    def describe_table_version(self, request: Any) -> Any:  # noqa: ANN401
        try:
            return {"version": self._described(request["version"])}
        except MemwalError as error:
            raise TableVersionNotFoundError(str(error)) from error

    def create_table_version(self, request: Any) -> Any:  # noqa: ANN401
        self.staged_path = f"{TABLE_VERSIONS_DIRECTORY}/{request['manifest_path'].rpartition('/')[2]}"
        try:
            size = self._publish(request["version"], self.staged_path)
        except ConflictError as error:
            self.outcome, self.error = _Outcome.REFUSED, error
            raise ConcurrentModificationError(str(error)) from error
        except CommitUnknownError as error:
            self.outcome, self.error = _Outcome.UNKNOWN, error
            raise
        except MemwalError as error:
            self.outcome, self.error = _Outcome.FAILED, error
            raise
        self.outcome = _Outcome.PUBLISHED
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


def strict_commit(store: ObjectStore, attempt: StrictCommit) -> int:
    """Make the version after ``read_version``, or change nothing that anybody can see.

    Files of the attempt (staged manifest, transaction) are removed only when it is certain that
    they are not needed. Data files that the operation names are the caller's to clean up.

    Args:
        store: Rooted at the table.
        attempt: What to commit.

    Returns:
        The new version, ``read_version + 1``.

    Raises:
        ConflictError: Somebody else made that version; nothing was published.
        CommitUnknownError: The store did not answer; read the table before trying again.
        InternalError: pylance broke the protocol; report it.
        MemwalError: Whatever else kept pylance or ``change_entry`` from making the version;
            nothing was published.
    """
    namespace = _NextVersionOnly(store, attempt)
    transaction = lance.Transaction(
        read_version=attempt.read_version,
        operation=attempt.operation,
        uuid=str(attempt.transaction_id),
        transaction_properties={"__lance_commit_message": attempt.message},
    )
    try:
        with translated("strict commit", store.uri, read_version=attempt.read_version):
            lance.LanceDataset.commit(
                store.uri,
                transaction,
                storage_options=dict(store.storage_options),
                max_retries=0,
                namespace_client=namespace,
                table_id=_TABLE_ID,
                namespace_client_managed_versioning=True,
            )
    except MemwalError as error:
        # Only the namespace knows what became of the version; pylance reports doubt in any case.
        if namespace.outcome is not _Outcome.PUBLISHED:
            if namespace.outcome is not _Outcome.UNKNOWN:
                _remove_attempt(store, attempt, namespace.staged_path)
            raise namespace.error or error from error
    if namespace.outcome is _Outcome.UNKNOWN and namespace.error is not None:
        # pylance read back and believes that the version is ours; the caller makes sure by progress.
        raise namespace.error
    if namespace.outcome is not _Outcome.PUBLISHED:
        raise InternalError(
            "pylance committed without asking for the version",
            remedy="check the table's newest version, then report this",
            read_version=attempt.read_version,
        )
    if namespace.staged_path is not None:
        store.delete(namespace.staged_path)
    return attempt.read_version + 1


def _remove_attempt(store: ObjectStore, attempt: StrictCommit, staged_path: str | None) -> None:
    if staged_path is not None:
        store.delete(staged_path)
    store.delete(f"_transactions/{attempt.read_version}-{attempt.transaction_id}.txn")
