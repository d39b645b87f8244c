"""A compare-and-swap commit: version V+1 is made from version V, or nothing is.

pylance rebases a commit onto whatever others committed meanwhile, even without retries, and for
the MemWAL index that silently overwrites newer merge progress. With this rule the version catalog refuses
any version but V+1 and puts the new MemWAL index into the staged manifest. Rows, deletions and progress of
one operation so become visible together.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

import lance

from memwal_core.base_table.commit.durable import DurableFiles
from memwal_core.base_table.commit.version_catalog import TABLE_ID, RefusedError, VersionCatalog
from memwal_core.base_table.commit_attempt import Outcome, StrictCommit
from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.base_table.translate import translated, without_doubt
from memwal_core.errors import ConflictError, InternalError, MemwalError, ObjectNotFoundError
from memwal_core.format.paths import TRANSACTIONS_DIRECTORY
from memwal_core.format.table_manifest import replace_mem_wal_entry
from memwal_core.storage import ObjectStore

_log = logging.getLogger(__name__)


class Published(NamedTuple):
    """A version that was made.

    Attributes:
        version: Its number.
        manifest: Its content.
        tidy: Removes files that it does not need; to be called at any time.
    """

    version: int
    manifest: bytes
    tidy: Callable[[], None]


def strict_commit(store: ObjectStore, durable: DurableFiles, attempt: StrictCommit) -> Published:
    """Make the version after ``read_version``, or change nothing that anybody can see.

    Files of the attempt (staged manifest, transaction) are removed only when it is certain that
    they are not needed. Data files that the operation names are the caller's to clean up.

    Raises:
        ConflictError: Somebody else made that version, or ``read_version`` was removed meanwhile; nothing was
            published. Read the table again and derive everything anew.
        CommitUnknownError: The store did not answer; read the table before trying again. ``facts["transaction_id"]``
            is in the manifest of ``read_version + 1`` if it landed.
        InternalError: pylance broke the protocol; report it.
        MemwalError: Whatever else kept pylance or ``change_entry`` from making the version;
            nothing was published.
    """
    catalog = VersionCatalog(
        store,
        durable,
        lambda version, staged: _next_version(attempt, version, staged),
        identity=f"strict commit {attempt.transaction_id}",
        only=attempt.read_version,
        before=attempt.require_read,
    )
    transaction = lance.Transaction(
        read_version=attempt.read_version,
        operation=attempt.operation,
        uuid=str(attempt.transaction_id),
        transaction_properties={"__lance_commit_message": attempt.message},
    )
    try:
        with translated("strict commit", store.uri, read_version=attempt.read_version):
            lance.LanceDataset.commit(
                attempt.opened if attempt.opened is not None else store.uri,
                transaction,
                storage_options=dict(store.storage_options),
                max_retries=0,
                namespace_client=catalog.client,
                table_id=TABLE_ID,
                namespace_client_managed_versioning=True,
            )
    except MemwalError as error:
        # Only the catalog knows what became of the version; pylance reports doubt in any case.
        if catalog.outcome is not Outcome.PUBLISHED:
            if catalog.outcome is not Outcome.UNKNOWN:
                catalog.remove_staged()
                _remove_transaction(store, attempt)
            found = _described(catalog, attempt) or catalog.unanswered
            if catalog.outcome is Outcome.NOT_ASKED:
                found = found or if_removed(store, attempt.read_version)
            raise found or without_doubt(error, asked_version=catalog.asked_version) from error
    if catalog.outcome is Outcome.UNKNOWN and catalog.error is not None:
        # pylance read back and believes that the version is ours; the caller makes sure by its transaction.
        raise _described(catalog, attempt) or catalog.error
    if catalog.outcome is not Outcome.PUBLISHED:
        raise InternalError(
            "pylance committed without asking for the version",
            remedy="check the table's newest version, then report this",
            read_version=attempt.read_version,
        )
    return Published(attempt.read_version + 1, catalog.published, catalog.remove_staged)


def _next_version(attempt: StrictCommit, version: int, staged: bytes) -> bytes:
    """Return the staged manifest with the new MemWAL index; refuse any version but the next."""
    if version != attempt.read_version + 1:
        raise RefusedError(
            "pylance moved the commit onto a newer version",
            remedy="read the table again and repeat the change",
            expected=attempt.read_version + 1,
            found=version,
        )
    if str(attempt.transaction_id).encode() not in staged:
        # Then two attempts could have equal bytes, and a lost race would look like a lost reply.
        raise InternalError("a staged manifest does not name its transaction", remedy="report this")
    return replace_mem_wal_entry(staged, attempt.change_entry)


def _described(catalog: VersionCatalog, attempt: StrictCommit) -> MemwalError | None:
    error = catalog.error
    if error is not None and catalog.outcome is Outcome.UNKNOWN:
        facts = {**error.facts, "transaction_id": str(attempt.transaction_id)}
        return type(error)(error.what, remedy=error.remedy, **facts)
    return error


def if_removed(store: ObjectStore, version: int) -> ConflictError | None:
    """Return why pylance cannot go on from a version if it is gone, which it reports as a failed read; else None.

    Versions are removed only once there are newer ones, so this is a lost race like any other.
    """
    try:
        ManifestFiles(store).locate(version)
    except ObjectNotFoundError:
        return removed_meanwhile(store, version)
    except MemwalError:
        return None  # The store does not answer; what pylance said stands.
    return None


def removed_meanwhile(store: ObjectStore, version: int) -> ConflictError:
    """Return what says that a version that a change was derived from is not there any longer."""
    return ConflictError(
        "the version that this change was derived from was removed meanwhile",
        remedy="read the table again and repeat the change; keep old versions longer than any job runs",
        table=store.uri,
        read_version=version,
    )


def _remove_transaction(store: ObjectStore, attempt: StrictCommit) -> None:
    path = f"{TRANSACTIONS_DIRECTORY}/{attempt.read_version}-{attempt.transaction_id}.txn"
    try:
        store.delete(path)
    except MemwalError as error:
        _log.warning("the transaction of a refused commit was not removed [path=%s, error=%s]", path, error)
