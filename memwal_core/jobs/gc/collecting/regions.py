"""Collect the garbage of some regions, in this process or in another one, in the order of a whole run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.gc.collecting.deleter import Deleter, Failure
from memwal_core.jobs.gc.items import Item, Kind, Tally
from memwal_core.jobs.gc.plan import KINDS
from memwal_core.jobs.gc.policy import Policy
from memwal_core.jobs.gc.state import BaseState
from memwal_core.jobs.gc.survey import GcSurveyor


@dataclass(frozen=True, slots=True)
class RegionGarbage:
    """What a run acts on in some regions.

    Attributes:
        policy: Of the plan; its time stays fixed.
        base: The base table as planned on, with what its retained versions say of these regions.
    """

    items: tuple[Item, ...]
    policy: Policy
    base: BaseState

    @property
    def regions(self) -> tuple[RegionId, ...]:
        """The regions, ordered."""
        return tuple(sorted({each.region_id for each in self.items if each.region_id is not None}))


@dataclass(frozen=True, slots=True)
class Collected:
    """What became of it."""

    done: Mapping[Kind, Tally]
    failures: tuple[Failure, ...]


def garbage_of(items: Sequence[Item], regions: Collection[RegionId], policy: Policy, base: BaseState) -> RegionGarbage:
    """Return the garbage of some regions, with no more of the base table than they need."""
    own = tuple(item for item in items if item.region_id in regions)
    retained = tuple(
        replace(
            each, merged={region: each.merged[region] for region in regions if region in each.merged}, manifest=None
        )
        for each in base.retained
    )
    # The table is read anew before anything is given up; only its retained versions are taken from the plan.
    return RegionGarbage(own, policy, replace(base, details=None, retained=retained))


def collect_regions(context: JobContext, garbage: RegionGarbage) -> Collected:
    """Drain and delete what is still free; doing it again finds it gone, and counts it as deleted.

    Raises:
        FrozenError: What was read again contradicts what was seen before.
    """
    policy = garbage.policy
    surveyor = replace(GcSurveyor.of(context), settled_before=policy.settled_before, old_before=policy.old_before)
    deleter = Deleter(surveyor, policy, garbage.base, context.guard)
    for kind, rules in KINDS.items():
        items = [item for item in garbage.items if item.kind is kind]
        if items:
            rules.collect(items, deleter)
    return Collected(dict(deleter.done), tuple(deleter.failures))
