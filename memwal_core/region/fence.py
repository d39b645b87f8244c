"""Who may write a region: the epoch in its manifest decides."""

from __future__ import annotations

import logging

from memwal_core.errors import ConflictError, CorruptionError, FencedError
from memwal_core.format.region_manifest.model import RegionManifest
from memwal_core.ids import RegionId
from memwal_core.region.changes import claim_epoch
from memwal_core.region.store import ManifestStore

_log = logging.getLogger(__name__)


def check_epoch(local: int, stored: RegionManifest) -> None:
    """Require that a writer's epoch is still the stored one.

    As the ``check`` of ``ManifestStore.update`` it is repeated on each version the update is based on;
    the version number catches what happens between the check and the write.

    Raises:
        FencedError: Another writer has claimed the region. Stop writing.
        CorruptionError: The stored epoch is lower than one that was granted from it. Stop.
    """
    if local < stored.writer_epoch:
        raise FencedError(
            "another writer has claimed the region",
            remedy="stop this writer; open a new one if this process should own the region",
            region_id=str(stored.region_id),
            writer_epoch=local,
            stored_epoch=stored.writer_epoch,
        )
    if local > stored.writer_epoch:
        raise CorruptionError(
            "the region's stored epoch went back",
            remedy="if the table was restored from a copy, restart its writers, and write again what came later; "
            "otherwise stop all writers of the region and follow docs/runbooks/corrupt-region-manifest.md",
            region_id=str(stored.region_id),
            writer_epoch=local,
            stored_epoch=stored.writer_epoch,
            version=stored.version,
        )


def claim(store: ManifestStore, region_id: RegionId, *, expected_epoch: int | None = None) -> RegionManifest:
    """Become the writer of an existing region; its present writer is fenced at its next check.

    The epoch of the returned version belongs to this caller alone. After ``CommitUnknownError``, claim
    again: an unused epoch does no harm.

    Args:
        store: The table's region manifests.
        region_id: The region.
        expected_epoch: Claim only from the writer of this epoch; from any if None.

    Raises:
        ConflictError: Another process claimed the region first. Look at it again.
    """

    def change(stored: RegionManifest) -> RegionManifest:
        if expected_epoch is not None and stored.writer_epoch != expected_epoch:
            raise ConflictError(
                "another process claimed the region first",
                remedy="look at the region again; its new writer may be alive",
                region_id=str(region_id),
                expected_epoch=expected_epoch,
                found_epoch=stored.writer_epoch,
            )
        return claim_epoch(stored)

    claimed = store.update(region_id, change)
    _log.info("region claimed [region_id=%s, writer_epoch=%d]", region_id, claimed.writer_epoch)
    return claimed
