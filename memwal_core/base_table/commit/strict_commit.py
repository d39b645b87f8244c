"""A compare-and-swap commit: version V+1 is made from version V, or nothing is.

pylance rebases a commit onto whatever others committed meanwhile, even without retries, and for
the MemWAL index that silently overwrites newer merge progress. Its extension point for external
version catalogs is the way out: pylance stages the manifest and then asks a namespace to make it
the next version. Ours refuses any version but V+1, puts the new MemWAL index into the staged
manifest and publishes it by put-if-absent at its final path. Rows, deletions and progress of one
operation so become visible together.
"""

from __future__ import annotations

import lance

from memwal_core.base_table.commit_attempt import Outcome, StrictCommit
from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.base_table.translate import translated
from memwal_core.errors import ConflictError, InternalError, MemwalError, ObjectNotFoundError
from memwal_core.storage import ObjectStore

_TABLE_ID = ["base"]


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
        ConflictError: Somebody else made that version, or ``read_version`` was removed meanwhile; nothing was
            published. Read the table again and derive everything anew.
        CommitUnknownError: The store did not answer; read the table before trying again.
        InternalError: pylance broke the protocol; report it.
        MemwalError: Whatever else kept pylance or ``change_entry`` from making the version;
            nothing was published.
    """
    # Imports the client of a REST service, a third of the start-up time of processes that only read.
    from memwal_core.base_table.commit.version_catalog import NextVersionOnly  # noqa: PLC0415

    namespace = NextVersionOnly(store, attempt)
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
        if namespace.outcome is not Outcome.PUBLISHED:
            if namespace.outcome is not Outcome.UNKNOWN:
                _remove_attempt(store, attempt, namespace.staged_path)
            raise namespace.error or _without_read_version(store, attempt, namespace.outcome) or error from error
    if namespace.outcome is Outcome.UNKNOWN and namespace.error is not None:
        # pylance read back and believes that the version is ours; the caller makes sure by progress.
        raise namespace.error
    if namespace.outcome is not Outcome.PUBLISHED:
        raise InternalError(
            "pylance committed without asking for the version",
            remedy="check the table's newest version, then report this",
            read_version=attempt.read_version,
        )
    if namespace.staged_path is not None:
        store.delete(namespace.staged_path)
    return attempt.read_version + 1


def _without_read_version(store: ObjectStore, attempt: StrictCommit, outcome: Outcome) -> ConflictError | None:
    """Return why pylance could not even begin if the version read is gone, which it reports as a failed read.

    Versions are removed only once there are newer ones, so this is a lost race like any other.
    """
    if outcome is not Outcome.NOT_ASKED:
        return None
    try:
        ManifestFiles(store).locate(attempt.read_version)
    except ObjectNotFoundError:
        return ConflictError(
            "the version that this change was derived from was removed meanwhile",
            remedy="read the table again and repeat the change; keep old versions longer than any job runs",
            table=store.uri,
            read_version=attempt.read_version,
        )
    except MemwalError:
        return None  # The store does not answer; what pylance said stands.
    return None


def _remove_attempt(store: ObjectStore, attempt: StrictCommit, staged_path: str | None) -> None:
    if staged_path is not None:
        store.delete(staged_path)
    store.delete(f"_transactions/{attempt.read_version}-{attempt.transaction_id}.txn")
