"""Lance's own operations on a base table, committed through the version catalog."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import lance

from memwal_core.base_table.commit.durable import DurableFiles
from memwal_core.base_table.commit.entry_change import is_same_but_catchup
from memwal_core.base_table.commit.strict_commit import if_removed, removed_meanwhile
from memwal_core.base_table.commit.version_catalog import TABLE_ID, CommitRule, RefusedError, VersionCatalog
from memwal_core.base_table.commit_attempt import Outcome
from memwal_core.base_table.reading.manifest_files import ManifestFiles
from memwal_core.base_table.translate import translated, without_doubt
from memwal_core.errors import ConflictError, MemwalError, ObjectNotFoundError
from memwal_core.format.memwal_index.codec import decode_details, is_legacy_payload
from memwal_core.format.table_manifest import MemWalEntry, replace_mem_wal_entry
from memwal_core.storage import ObjectStore


@contextmanager
def committing(
    store: ObjectStore,
    durable: DurableFiles,
    identity: uuid.UUID,
    version: int | None = None,
    *,
    strictly: bool = False,
) -> Iterator[lance.LanceDataset]:
    """Open a version for one of Lance's operations; its commits are durable, and leave the MemWAL index as it is.

    Lance rebases and retries as it does by itself, unless ``strictly`` says that the commit must make the next
    version. Only index catch-up may change, which Lance credits itself.

    Raises:
        ConflictError: Other commits came first, or the commit would have changed merge progress; nothing was
            published. Read the table again and repeat the work.
        CommitUnknownError: Read the table before trying again.
        MemwalError: What else the operation failed of.
    """
    rule = _keeping_entry(store, version if strictly else None)
    catalog = VersionCatalog(store, durable, rule, identity=str(identity))
    try:
        with translated("commit", store.uri, version=version):
            yield lance.LanceDataset(
                store.uri,
                version,
                storage_options=dict(store.storage_options),
                namespace_client=catalog.client,
                table_id=TABLE_ID,
                namespace_client_managed_versioning=True,
            )
    except MemwalError as error:
        # pylance tells every failure of the catalog as a doubt about the commit.
        if catalog.error is not None and catalog.outcome is not Outcome.PUBLISHED:
            raise catalog.error from error
        if catalog.unanswered is not None and catalog.outcome is Outcome.NOT_ASKED:
            raise catalog.unanswered from error
        if version is not None and catalog.outcome is Outcome.NOT_ASKED:
            removed = if_removed(store, version)
            if removed is not None:
                raise removed from error
        certain = without_doubt(error, asked_version=catalog.asked_version)
        if certain is not error:
            raise certain from error
        raise
    finally:
        catalog.remove_staged()
    if catalog.outcome is Outcome.UNKNOWN and catalog.error is not None:
        # pylance read back and found its version, which need not be durable.
        raise catalog.error


def _keeping_entry(store: ObjectStore, read_version: int | None) -> CommitRule:
    manifests = ManifestFiles(store)

    def rule(version: int, staged: bytes) -> bytes:
        if read_version is not None and version != read_version + 1:
            raise RefusedError(
                "another commit changed the table first",
                remedy="read the table again and repeat the work",
                expected=read_version + 1,
                found=version,
            )
        try:
            before = manifests.read(version - 1).mem_wal
        except ObjectNotFoundError as error:
            raise removed_meanwhile(store, version - 1) from error
        if before is None:
            return staged
        return replace_mem_wal_entry(staged, lambda entry: _kept(before, entry, version))

    return rule


def _kept(before: MemWalEntry, entry: MemWalEntry, version: int) -> MemWalEntry:
    """Return the entry to publish: under the id of before, where the external snapshot is stored."""
    if is_legacy_payload(before.payload):
        same = entry.payload == before.payload
    else:
        same = is_same_but_catchup(decode_details(before.payload), decode_details(entry.payload))
    if not same:
        raise ConflictError(
            "the commit would replace merge progress or configuration that came after the version it was made from",
            remedy="read the table again and repeat the work",
            version=version,
        )
    return MemWalEntry(before.index_id, entry.payload)
