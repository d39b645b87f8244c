"""Who may write a region: the epoch in its manifest decides."""

from __future__ import annotations

import logging

from memwal_core.errors import CorruptionError, FencedError
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
            remedy="stop all writers of the region and follow docs/runbooks/corrupt-region-manifest.md",
            region_id=str(stored.region_id),
            writer_epoch=local,
            stored_epoch=stored.writer_epoch,
            version=stored.version,
        )


def claim(store: ManifestStore, region_id: RegionId) -> RegionManifest:
    """Become the writer of an existing region; its present writer is fenced at its next check.

    The epoch of the returned version belongs to this caller alone. After ``CommitUnknownError``, claim
    again: an unused epoch does no harm.
    """
    claimed = store.update(region_id, claim_epoch)
    _log.info("region claimed [region_id=%s, writer_epoch=%d]", region_id, claimed.writer_epoch)
    return claimed
