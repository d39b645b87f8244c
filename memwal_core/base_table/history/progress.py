"""The merge progress of many versions, of which each differs little from the one before."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping

from memwal_core.ids import RegionId

MergedGenerations = Mapping[RegionId, int]
"""Region -> merged generation; a missing region has merged nothing."""

_SHARED = 4
"""Progress is kept as changes of an earlier one while these are less than this fraction of it."""


class ProgressLine:
    """Keeps the progress of version after version in memory that grows with what changes between them."""

    def __init__(self) -> None:
        self._ids: dict[RegionId, RegionId] = {}
        self._base: dict[RegionId, int] = {}
        self._given: MergedGenerations | None = None
        self._last: MergedGenerations = self._base

    def next(self, given: MergedGenerations) -> MergedGenerations:
        """Return the same progress, as changes of an earlier one if they are few."""
        if given is not self._given:
            self._given = given
            self._last = self._kept(given)
        return self._last

    def _kept(self, given: MergedGenerations) -> MergedGenerations:
        base = self._base
        changed = {region_id: merged for region_id, merged in given.items() if base.get(region_id) != merged}
        changed |= dict.fromkeys(base.keys() - given.keys(), 0)
        if not changed:
            return base
        own = {self._ids.setdefault(region_id, region_id): merged for region_id, merged in changed.items()}
        if len(own) * _SHARED < len(base):
            return _Changed(base, own)
        self._base = {self._ids.setdefault(region_id, region_id): merged for region_id, merged in given.items()}
        return self._base


class _Changed(MergedGenerations):
    """An earlier progress with changes; 0 stands for a region that is no longer there."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: dict[RegionId, int], changes: dict[RegionId, int]) -> None:
        self._base = base
        self._changes = changes

    def _whole(self) -> dict[RegionId, int]:
        return {region_id: merged for region_id, merged in {**self._base, **self._changes}.items() if merged}

    def __getitem__(self, region_id: RegionId) -> int:
        merged = self._changes.get(region_id)
        if merged is None:
            return self._base[region_id]
        if not merged:
            raise KeyError(region_id)
        return merged

    def __iter__(self) -> Iterator[RegionId]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def items(self) -> ItemsView[RegionId, int]:
        return self._whole().items()

    @property
    def parts(self) -> tuple[MergedGenerations, MergedGenerations]:
        return self._base, self._changes


def changes(before: MergedGenerations, now: MergedGenerations) -> MergedGenerations:
    """Return what is merged of the regions in which ``now`` differs; 0 of those that are no longer there."""
    (base, own), (other, others) = (each.parts if isinstance(each, _Changed) else (each, {}) for each in (before, now))
    regions = {*own, *others} if base is other else {*before, *now}
    return {each: now.get(each, 0) for each in regions if now.get(each, 0) != before.get(each, 0)}
