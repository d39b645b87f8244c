"""Repair: copy, act, look again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from memwal_core.base_table.commit.row_removal import remove_rows
from memwal_core.base_table.history.torn import set_torn_versions_aside
from memwal_core.errors import ConflictError, CorruptionError
from memwal_core.failpoints import Failpoint
from memwal_core.format.paths import TABLE_VERSIONS_DIRECTORY, generation_path, manifest_path, wal_entry_path
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.repair.backup import Backup
from memwal_core.jobs.repair.duplicates import find_duplicates
from memwal_core.jobs.repair.loss import loss_of
from memwal_core.jobs.repair.plan import DamagedGeneration, RepairKind, RepairPlan, RepairStep, plan_repair
from memwal_core.jobs.repair.rebuild import Rebuilder
from memwal_core.jobs.repair.report import DoneStep, RepairReport
from memwal_core.jobs.repair.request import RepairRequest
from memwal_core.jobs.repair.sources import RowSources
from memwal_core.jobs.repair.survey import RepairSurveyor
from memwal_core.jobs.repair.wal import damaged_entries, put_fences
from memwal_core.region import RegionManifest, restore_generation
from memwal_core.storage.protocol import ObjectStore
from memwal_core.text import show_count
from memwal_core.wal import codec_of_region
from memwal_core.writer.layout import TableLayout

_log = logging.getLogger(__name__)

REPAIR_COPIED = Failpoint("repair.copied")
REPAIR_WRITTEN = Failpoint("repair.written")
REPAIR_CHANGED = Failpoint("repair.changed")

_TORN_ATTEMPTS = 3


def repair(context: JobContext, request: RepairRequest) -> RepairReport:
    """Repair what can be repaired; errors as for ``Job.run``."""
    return _Repair(context, request).run()


class _Repair:
    def __init__(self, context: JobContext, request: RepairRequest) -> None:
        opened = context.opened
        self._context = context
        self._request = request
        self._began = opened.clock.monotonic()
        self._surveyor = RepairSurveyor(opened, request, context.progress)
        unique = opened.base.ids.commit_id().hex()
        self._backup = Backup(opened.base.store, opened.clock.now(), unique, opened.settings.storage.concurrency)
        self._done: list[DoneStep] = []
        self._unneeded = request.losses

    def run(self) -> RepairReport:
        plan = self._plan()
        if self._request.dry_run:
            return self._report(plan, JobOutcome.PLANNED if plan.is_due else _idle(plan))
        for _ in range(_TORN_ATTEMPTS):
            if not any(step.kind is RepairKind.SET_ASIDE_TORN for step in plan.steps):
                break
            self._carry_out(plan.steps)
            plan = self._plan()  # Only now can the rest of the table be looked at.
        self._carry_out(plan.steps)
        if not self._done:
            return self._report(plan, _idle(plan))
        proof = self._plan()
        if proof.steps:
            raise CorruptionError(
                "a repair did not mend what it was meant to mend",
                remedy="report this; copies of what was touched are in the directory named here",
                table=self._context.opened.uri,
                left=[each.to_dict() for each in proof.steps],
                backup=self._backup.directory,
            )
        return self._report(proof, JobOutcome.BLOCKED if proof.unresolved else JobOutcome.DONE)

    def _plan(self) -> RepairPlan:
        state = self._surveyor.survey(duplicates=self._request.duplicates)
        # Once it was damaged it fits, also when it is mended.
        self._unneeded = self._unneeded.without_damage(state)
        return plan_repair(state, self._request.losses)

    def _carry_out(self, steps: tuple[RepairStep, ...]) -> None:
        actions: dict[RepairKind, Callable[[RepairStep], DoneStep | None]] = {
            RepairKind.SET_ASIDE_TORN: self._set_aside_torn,
            RepairKind.REBUILD: self._restore,
            RepairKind.GIVE_UP: self._restore,
            RepairKind.GIVE_UP_ENTRIES: self._give_up_entries,
            RepairKind.REMOVE_DUPLICATES: self._remove_duplicates,
        }
        for number, step in enumerate(steps):
            self._context.progress("steps", number, len(steps))
            done = actions[step.kind](step)
            if done is not None:
                self._done.append(done)
                _log.warning("repaired [table=%s, step=%s, subject=%s]", self._uri, step.kind.value, step.subject)

    def _set_aside_torn(self, step: RepairStep) -> DoneStep:
        found = self._surveyor.torn()
        directory = f"{self._backup.directory}/objects/{TABLE_VERSIONS_DIRECTORY}"
        moved = {each.path: f"{directory}/{each.path.rpartition('/')[2]}" for each in found.torn}
        undo = "copy the manifests back under their old names, newest last, before anything else is committed"
        self._record(step, {"moved": moved, "undo": undo})
        self._context.guard()
        set_torn_versions_aside(self._store, found, directory)
        self._context.failpoints.hit(REPAIR_CHANGED)
        return DoneStep(step, f"version {found.newest_whole} is the newest", {"moved": moved})

    def _restore(self, step: RepairStep) -> DoneStep | None:
        """Write a generation anew from what is left of it, and let the region manifest name the new directory."""
        opened, planned = self._context.opened, step.generation
        assert planned is not None  # noqa: S101 - the plan makes these steps of generations
        manifest = opened.manifests.load(planned.region_id)
        state = opened.base.state()
        found = self._surveyor.damaged_generation(manifest, planned.generation, state)
        if found is None:
            return None  # Merged, or mended by another run meanwhile.
        damaged, sources = found
        if step.kind is RepairKind.REBUILD and not damaged.is_complete:
            raise ConflictError(
                "what a generation was to be rebuilt from has changed meanwhile",
                remedy="repair again",
                table=self._uri,
                generation=damaged.label,
                found=damaged.evidence,
            )
        layout = sources.layout if sources.layout is not None else TableLayout.of(state)
        facts = self._keep_generation(step, manifest, damaged, sources, layout)
        self._context.guard()
        rebuilder = Rebuilder(opened.base, self._context.failpoints)
        written = rebuilder.write(damaged.region_id, damaged.generation, sources.rows, layout)
        self._context.failpoints.hit(REPAIR_WRITTEN)
        self._context.guard()
        # A generation in another directory is otherwise a region that began again.
        opened.freezes.update(
            lambda record: replace(
                record, memory=record.memory.without_generation(damaged.region_id, damaged.generation)
            )
        )
        opened.manifests.update(
            damaged.region_id,
            lambda stored: _restored(stored, manifest, restore_generation(stored, written)),
            restores=True,
        )
        self._context.failpoints.hit(REPAIR_CHANGED)
        result = f"{show_count(written.physical_rows or 0, 'row')} in {written.path}"
        return DoneStep(step, result, {**facts, "directory": written.path, "rows": written.physical_rows})

    def _keep_generation(
        self,
        step: RepairStep,
        manifest: RegionManifest,
        damaged: DamagedGeneration,
        sources: RowSources,
        layout: TableLayout,
    ) -> dict[str, object]:
        """Copy what the record of a generation stands for now, and write down what is given up."""
        paths = self._backup.copy([manifest_path(manifest.region_id, manifest.version)])
        if damaged.path is not None:
            paths |= self._backup.copy_directory(generation_path(damaged.region_id, damaged.path))
        facts: dict[str, object] = {}
        if step.kind is RepairKind.GIVE_UP:
            loss = loss_of(self._store, damaged, sources, layout)
            facts["loss"] = {**loss.to_dict(), "wal_entries_gone": dict(sources.lost)}
            if loss.keys is not None:
                name = f"lost-keys-{damaged.region_id}-{damaged.generation}"
                facts["lost_keys"] = self._backup.rows(name, loss.keys)
        undo = (
            f"region {damaged.region_id} recorded generation {damaged.generation} as {damaged.path}; its directory is "
            "left where it is until garbage collection takes it, and copied here"
        )
        self._record(step, {"copied": paths, **facts, "undo": undo})
        return facts

    def _give_up_entries(self, step: RepairStep) -> DoneStep | None:
        opened, planned = self._context.opened, step.wal
        assert planned is not None  # noqa: S101 - the plan makes these steps of WAL entries
        manifest = opened.manifests.load(planned.region_id)
        damaged = damaged_entries(self._store, manifest)
        entries = {wal_id: cause for wal_id, cause in damaged.items() if wal_id in planned.entries}
        if not entries:
            return None  # Restored or flushed meanwhile.
        suffix = codec_of_region(manifest, {}).suffix
        paths = [wal_entry_path(planned.region_id, wal_id, suffix) for wal_id in entries]
        facts: dict[str, object] = {"wal_entries": {str(wal_id): cause for wal_id, cause in entries.items()}}
        copied = self._backup.copy([manifest_path(planned.region_id, manifest.version), *paths])
        undo = "while the region has not been flushed, copy the entries back under their own paths"
        self._record(step, {"copied": copied, **facts, "undo": undo})
        put_fences(opened, manifest, entries, self._context.guard, self._context.failpoints)
        self._context.failpoints.hit(REPAIR_CHANGED)
        return DoneStep(step, f"{show_count(len(entries), 'entry')} without rows in their place", facts)

    def _remove_duplicates(self, step: RepairStep) -> DoneStep | None:
        base = self._context.opened.base
        state = base.state()
        found = find_duplicates(base, state)
        if not len(found.addresses):
            return None
        rows = self._backup.rows("duplicate-rows", found.rows)
        undo = (
            f"all rows of these keys, with their addresses in version {state.version}, are in {rows}; the version "
            "itself can be restored while it is retained and no merge is newer"
        )
        self._record(step, {"version": state.version, "rows": rows, "undo": undo})
        self._context.guard()
        version = remove_rows(base, state, found.addresses, "repair: remove duplicate keys")
        self._context.failpoints.hit(REPAIR_CHANGED)
        count = len(found.addresses)
        result = f"{show_count(count, 'row')} removed in version {version}"
        return DoneStep(step, result, {"rows": count, "version": version})

    def _record(self, step: RepairStep, document: dict[str, object]) -> None:
        self._context.guard()
        self._backup.record(step.kind.value, {**step.to_dict(), "table": self._uri, **document})
        self._context.failpoints.hit(REPAIR_COPIED)

    def _report(self, plan: RepairPlan, outcome: JobOutcome) -> RepairReport:
        opened = self._context.opened
        return RepairReport(
            table_uri=opened.uri,
            outcome=outcome,
            plan=plan,
            done=tuple(self._done),
            unneeded=self._unneeded.labels,
            backup=self._backup.directory if self._backup.is_used else None,
            seconds=opened.clock.monotonic() - self._began,
        )

    @property
    def _store(self) -> ObjectStore:
        return self._context.opened.base.store

    @property
    def _uri(self) -> str:
        return self._context.opened.uri


def _idle(plan: RepairPlan) -> JobOutcome:
    return JobOutcome.BLOCKED if plan.unresolved else JobOutcome.NOTHING_TO_DO


def _restored(stored: RegionManifest, seen: RegionManifest, changed: RegionManifest | None) -> RegionManifest | None:
    """Return the change, unless a job removed the generation's record since it was looked at."""
    before = {each.generation: each.path for each in seen.flushed_generations}
    now = {each.generation: each.path for each in stored.flushed_generations}
    if changed is None:
        return None
    restored = [each.generation for each in changed.flushed_generations if now.get(each.generation) != each.path]
    same = all(now.get(generation) == before.get(generation) for generation in restored)
    return changed if same else None
