"""Enabling MemWAL again on a table that has lost its index beside its regions: frozen first, and divided as before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memwal_core.base_table import TableState, retained_versions
from memwal_core.coordination.freeze import FreezeCause, Memory, Sighting
from memwal_core.coordination.freeze.comparison import FLUSHED, MERGED_BEFORE, flushed_generations
from memwal_core.coordination.freeze.watch import contradictions, look
from memwal_core.errors import InvalidRequestError
from memwal_core.jobs.context import OpenTable
from memwal_core.region.spec import RegionSpec

_BY = "enable"


@dataclass(frozen=True, slots=True)
class FormerIndex:
    """What the newest version that had the index tells of it, in field ids of the version that has lost it.

    Attributes:
        version: That version; None if it was cleaned up, and then the rest is empty.
        key: Columns of the primary key.
        maintained_indexes: Those that the table still has.
    """

    version: int | None = None
    key: tuple[str, ...] = ()
    specs: tuple[RegionSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()

    def require_key(self, columns: Sequence[str]) -> None:
        """Refuse another key than that of the rows which wait in the regions (``InvalidRequestError``)."""
        if self.version is not None and tuple(columns) != self.key:
            raise InvalidRequestError(
                "the rows that wait in the regions have another primary key",
                remedy="enable MemWAL with the former key; or copy the content to a new table, and enable it there",
                version=self.version,
                former_key=list(self.key),
                key=list(columns),
            )

    def specs_or(self, wanted: Sequence[RegionSpec]) -> list[RegionSpec]:
        """Return the specs for the new index: a key that waits in a region must not wait in another one, too.

        Raises:
            InvalidRequestError: Others are wanted than there were.
        """
        if self.version is None:
            return list(wanted)
        if wanted and tuple(wanted) != self.specs:
            raise InvalidRequestError(
                "the regions that exist divide the table in another way",
                remedy="leave the division out, which takes the former one; once the table is thawed and merged, "
                "`memwal add-spec` divides it anew",
                version=self.version,
            )
        return list(self.specs)


def former_index(opened: OpenTable, state: TableState) -> FormerIndex | None:
    """Return what is known of the index that a table has lost; None if it never had regions.

    Raises:
        InvalidRequestError: A column that divided the table is gone.
    """
    if state.entry is not None or not opened.manifests.region_ids():
        return None
    base = opened.base
    versions = retained_versions(base, base.settings.storage.concurrency, with_tags=False)
    enabled = [each.version for each in versions if each.branch is None and each.enabled and not each.legacy]
    if not enabled:
        return FormerIndex()
    before = base.state(max(enabled))
    details = before.require_details()
    there = {index.name for index in base.indexes(state.version)}
    return FormerIndex(
        before.version,
        before.primary_key.columns,
        tuple(_renumbered(spec, before, state) for spec in details.region_specs),
        tuple(name for name in details.maintained_indexes if name in there),
    )


def freeze_for_lost_index(opened: OpenTable) -> None:
    """Freeze a table whose index is gone, so that no job acts on the new one before a person has decided."""
    record = opened.freezes.load()
    active = record.active if record is not None else ()
    if any(each.cause is FreezeCause.INDEX_GONE for each in active):
        return
    found = contradictions(opened.base, opened.manifests, record.memory if record is not None else None)
    if found:
        opened.freezes.freeze(found, _BY)
    if not any(each.cause is FreezeCause.INDEX_GONE for each in found):
        seen = look(opened.base, opened.manifests, Memory())
        opened.freezes.add(FreezeCause.INDEX_GONE, _evidence(seen), _BY)


def _evidence(seen: Sighting) -> dict[str, object]:
    """Return what is true of a table whose past nothing tells."""
    version = seen.table.version if seen.table is not None else None
    return {"version": version, MERGED_BEFORE: {}, FLUSHED: flushed_generations(seen)}


def _renumbered(spec: RegionSpec, before: TableState, now: TableState) -> RegionSpec:
    names = {field_id: name for name, field_id in before.field_ids.items()}
    gone = [names[each] for field in spec.fields for each in field.source_ids if names[each] not in now.field_ids]
    if gone:
        raise InvalidRequestError(
            "a column that divides the table into regions is gone",
            remedy="restore the version that has it, or add the column with its values",
            columns=gone,
            version=before.version,
        )
    fields = (
        replace(field, source_ids=tuple(now.field_ids[names[each]] for each in field.source_ids))
        for field in spec.fields
    )
    return replace(spec, fields=tuple(fields))
