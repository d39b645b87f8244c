"""The checks: one function per rule, from what was seen to findings. They read nothing themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memwal_core.observe.doctor.checks import generations, identity, indexes, legacy, manifests, progress, space, wal
from memwal_core.observe.doctor.examination import Examination
from memwal_core.observe.findings import Finding

DoctorCheck = Callable[[Examination], Iterable[Finding]]

CHECKS: tuple[DoctorCheck, ...] = (
    progress.table_is_readable,
    progress.table_is_not_frozen,
    progress.record_is_readable,
    progress.base_files_can_be_read,
    progress.merges_are_possible,
    progress.index_is_there,
    legacy.index_is_not_legacy,
    legacy.legacy_rules_hold,
    manifests.manifests_are_readable,
    manifests.manifests_exist,
    manifests.manifest_versions_are_contiguous,
    manifests.manifests_never_go_back,
    progress.progress_is_possible,
    progress.progress_has_its_region,
    progress.progress_never_goes_back,
    progress.catchup_follows_progress,
    generations.generations_are_contiguous,
    generations.generations_exist,
    generations.generations_open,
    generations.generations_can_be_merged,
    generations.generations_know_their_address,
    wal.wal_has_no_holes,
    wal.wal_entries_can_be_read,
    wal.wal_keeps_its_end,
    wal.wal_has_one_codec,
    wal.lance_wal_is_sealed,
    identity.specs_are_known,
    identity.region_values_are_unique,
    identity.keys_live_in_one_region,
    identity.rows_are_routed_right,
    indexes.partitions_are_balanced,
    indexes.indexes_can_be_read,
    space.bytes_are_recorded,
    space.names_are_known,
)

__all__ = ["CHECKS", "DoctorCheck"]
