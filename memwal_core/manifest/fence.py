"""Who may write a region: the epoch in its manifest decides."""

from __future__ import annotations

import logging

from memwal_core.errors import CorruptionError, FencedError
from memwal_core.ids import RegionId
from memwal_core.manifest.changes import claim_epoch
from memwal_core.manifest.model import RegionManifest
from memwal_core.manifest.store import ManifestStore

_log = logging.getLogger(__name__)


def check_epoch(local: int, stored: RegionManifest) -> None:
    """Require that a writer still owns its region.

    Passed as ``check`` to ``ManifestStore.update`` it is repeated on each version the update is
    based on; what happens between the check and the write is caught by the version number.

    Args:
        local: Epoch that the writer claimed.
        stored: The newest manifest version.

    Raises:
        FencedError: Another writer has claimed the region. Stop writing.
        CorruptionError: The stored epoch is lower than one that was granted from it. Stop.
    """
    if local < stored.writer_epoch:
        raise FencedError(
            "another writer has claimed the region",
            remedy="stop; open a new writer if this one is still wanted",
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
    """Become the writer of a region; the present one is fenced at its next check.

    Args:
        store: The table's region manifests.
        region_id: An existing region.

    Returns:
        The version that this claim wrote; its epoch belongs to this caller alone.

    Raises:
        ObjectNotFoundError: The region does not exist. Create it first.
        ConflictError: Others changed the region each time. Try again later.
        CommitUnknownError: It is unknown whether the claim landed. Claim again; an epoch that
            nobody uses does no harm.
        UnavailableError: The store does not answer. Back off and retry.
        CorruptionError: The region's manifest is damaged.
    """
    claimed = store.update(region_id, claim_epoch)
    _log.info("region claimed [region_id=%s, writer_epoch=%d]", region_id, claimed.writer_epoch)
    return claimed
