"""What every change of the MemWAL index must keep, as functions of (old, new) called before the swap.

A violation is refused, never repaired (``InvalidRequestError``): the caller derived its change from
the wrong version or from a wrong assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memwal_core.errors import InvalidRequestError
from memwal_core.format.memwal_index.details import MemWalIndexDetails
from memwal_core.ids import RegionId


def is_inline(num_regions: int, *, threshold: int) -> bool:
    """Return whether a snapshot of so many regions is stored inside the table manifest."""
    return num_regions <= threshold


def caught_up_generation(details: MemWalIndexDetails, index_names: Iterable[str], region_id: RegionId) -> int:
    """Return the newest merged generation of a region that all named indexes cover; without names, the newest merged.

    An index or region without a catch-up entry has covered nothing (decision 0005): the opposite reading
    deletes generations that no index has seen.
    """
    merged = details.merged_generation(region_id)
    covered = (details.index_catchup.get(name, {}).get(region_id, 0) for name in index_names)
    return min(merged, min(covered, default=merged))


def check_commit_without_rows(old: MemWalIndexDetails, new: MemWalIndexDetails) -> None:
    """Check a change that brings no rows: everything may change but the merge progress."""
    if old.merged_generations != new.merged_generations:
        raise InvalidRequestError(
            "merge progress may change only in the commit that brings the merged rows",
            remedy="derive the change from the details it is given and leave merged_generations unchanged",
            expected=_shown(old.merged_generations),
            found=_shown(new.merged_generations),
        )
    check_any_commit(old, new)


def check_any_commit(old: MemWalIndexDetails, new: MemWalIndexDetails) -> None:
    """Check a change that may bring rows: progress grows, catch-up follows it, specs stay."""
    check_progress_grows(old, new)
    check_catchup(old, new)
    check_specs(old, new)
    check_snapshot(new)


def check_progress_grows(old: MemWalIndexDetails, new: MemWalIndexDetails) -> None:
    """Check that no region's merged generation is lowered or forgotten."""
    for region_id, merged in old.merged_generations.items():
        if new.merged_generation(region_id) < merged:
            raise InvalidRequestError(
                "merge progress cannot go back",
                remedy="read the table again and derive the change from that version",
                region_id=str(region_id),
                recorded=merged,
                proposed=new.merged_generation(region_id),
            )


def check_catchup(old: MemWalIndexDetails, new: MemWalIndexDetails) -> None:
    """Check that catch-up stays at or below merge progress and that no remaining index goes back.

    Whole entries may go, with the index they belong to. Lance itself withdraws entries when it
    rewrites indexed fragments; that happens in its commits, not in ours.
    """
    for name, progress in new.index_catchup.items():
        for region_id, generation in progress.items():
            if generation > new.merged_generation(region_id):
                raise InvalidRequestError(
                    "an index cannot have caught up with a generation that is not merged",
                    remedy="record the merge progress of the version that the index was built on",
                    index=name,
                    region_id=str(region_id),
                    merged=new.merged_generation(region_id),
                    proposed=generation,
                )
        for region_id, recorded in old.index_catchup.get(name, {}).items():
            if progress.get(region_id, 0) < recorded:
                raise InvalidRequestError(
                    "index catch-up cannot go back",
                    remedy="read the table again; drop the whole entry if the index is gone",
                    index=name,
                    region_id=str(region_id),
                    recorded=recorded,
                    proposed=progress.get(region_id, 0),
                )


def check_specs(old: MemWalIndexDetails, new: MemWalIndexDetails) -> None:
    """Check that recorded region specs stay as they are, that ids are positive and unique, and types agree.

    Regions name their spec by id for ever, so a changed or dropped spec would make the values of
    existing regions unreadable. Two types of one field id do not fit into one snapshot column.
    """
    specs = {spec.spec_id: spec for spec in new.region_specs}
    if len(specs) != len(new.region_specs) or any(spec_id <= 0 for spec_id in specs):
        raise InvalidRequestError(
            "region spec ids must be positive and unique",
            remedy="give the new spec an id above all existing ones",
            spec_ids=[spec.spec_id for spec in new.region_specs],
        )
    for spec in old.region_specs:
        if specs.get(spec.spec_id) != spec:
            raise InvalidRequestError(
                "a recorded region spec cannot be changed or removed",
                remedy="add another spec with a new id; regions of both can exist side by side",
                spec_id=spec.spec_id,
            )
    types: dict[str, str] = {}
    for field in (field for spec in new.region_specs for field in spec.fields):
        known = types.setdefault(field.field_id, field.result_type)
        if known != field.result_type:
            raise InvalidRequestError(
                "one region field id cannot have two result types",
                remedy="give the field of the new spec another field id",
                field_id=field.field_id,
                expected=known,
                found=field.result_type,
            )


def check_snapshot(new: MemWalIndexDetails) -> None:
    """Check that the region count fits its wire type, an unsigned 32-bit number."""
    if not 0 <= new.num_regions < 1 << 32:
        raise InvalidRequestError(
            "the number of regions does not fit the index", remedy="count the regions again", found=new.num_regions
        )


def _shown(progress: Mapping[RegionId, int]) -> dict[str, int]:
    return {str(region_id): generation for region_id, generation in progress.items()}
