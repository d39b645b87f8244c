"""Relocation: prove that the files here are the table's own, then write down where it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import lance

from memwal_core.base_table import translated
from memwal_core.base_table.commit.snapshots import named_regions
from memwal_core.coordination.freeze import Choice, FreezeCause, FreezeEnd, MaintenanceRecord, compare
from memwal_core.coordination.freeze.watch import address_of, look
from memwal_core.errors import CorruptionError, ObjectNotFoundError
from memwal_core.failpoints import Failpoint
from memwal_core.flushed.read import check_contents, open_generation
from memwal_core.flushed.read.opening import shared_files, wal_of
from memwal_core.flushed.write import rebase_flushed
from memwal_core.format.paths import LANCE_WAL_SUFFIX, generation_path, parse_numbered_name
from memwal_core.ids import RegionId
from memwal_core.jobs.context import JobContext
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.jobs.readability.files import RegionProof, examine_base_files
from memwal_core.jobs.readability.indexes import incomplete_indexes
from memwal_core.jobs.relocate.plan import ExaminedGeneration, RelocationPlan, plan_relocation
from memwal_core.jobs.relocate.report import RelocateReport
from memwal_core.jobs.relocate.request import RelocateRequest
from memwal_core.jobs.repair.wal import damaged_entries
from memwal_core.region import FlushedGeneration, RegionManifest
from memwal_core.region.census import CensusTaker
from memwal_core.region.holes import missing_generations
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.wal import LanceCodec

RELOCATE_PROVEN = Failpoint("relocate.proven")
RELOCATE_REBASED = Failpoint("relocate.rebased")
RELOCATE_RECORDED = Failpoint("relocate.recorded")


def relocate(context: JobContext, request: RelocateRequest) -> RelocateReport:
    """Relocate a table; errors as for ``Job.run``."""
    return _Relocation(context, request).run()


class _Relocation:
    def __init__(self, context: JobContext, request: RelocateRequest) -> None:
        self._context = context
        self._request = request
        self._opened = context.opened
        self._began = context.opened.clock.monotonic()

    def run(self) -> RelocateReport:
        plan = self._plan()
        if plan.obstacles:
            return self._report(plan, JobOutcome.BLOCKED)
        if not plan.is_due:
            return self._report(plan, JobOutcome.NOTHING_TO_DO)
        if self._request.dry_run:
            return self._report(plan, JobOutcome.PLANNED)
        self._context.failpoints.hit(RELOCATE_PROVEN)
        for number, each in enumerate(plan.rebases):
            self._context.progress("addresses", number, len(plan.rebases))
            self._context.guard()
            rebase_flushed(self._opened.base.store, each.region_id, each.recorded)
            self._context.failpoints.hit(RELOCATE_REBASED)
        if plan.ends or plan.records_address:
            self._context.guard()
            self._opened.freezes.update(self._settled(plan))
            self._context.failpoints.hit(RELOCATE_RECORDED)
        return self._report(plan, JobOutcome.DONE)

    def _settled(self, plan: RelocationPlan) -> Callable[[MaintenanceRecord], MaintenanceRecord]:
        end = FreezeEnd(Choice.ACCEPT_COPY, self._context.holder, self._opened.clock.now(), self._request.reason)

        def change(record: MaintenanceRecord) -> MaintenanceRecord:
            ends = [each for each in record.active if each.cause is FreezeCause.ADDRESS_CHANGED]
            known = record.memory.addresses
            addresses = (plan.address,) if ends or plan.address not in known else known
            return replace(record.thawed(ends, end), memory=replace(record.memory, addresses=addresses))

        return change

    def _plan(self) -> RelocationPlan:
        opened = self._opened
        record = opened.freezes.load() or MaintenanceRecord()
        concurrency = opened.settings.storage.concurrency
        taker = CensusTaker(opened.base.store, opened.manifests, concurrency)
        census = taker.take()
        state = opened.base.state()
        merged = opened.base.require_mem_wal(state).merged_generations
        census = census.with_known(taker, *named_regions(opened.base, state))
        manifests = census.manifests
        wanted = [(manifest.region_id, each) for manifest in manifests for each in manifest.flushed_generations]
        done = 0

        def examine(each: tuple[RegionId, FlushedGeneration]) -> ExaminedGeneration | None:
            nonlocal done
            found = self._examine(*each, is_merged=each[1].generation <= merged.get(each[0], 0))
            done += 1
            self._context.progress("generations read", done, len(wanted))
            return found

        examined = [each for each in map_concurrently(examine, wanted, concurrency) if each is not None]
        seen = look(opened.base, opened.manifests, record.memory)
        damaged_wals = {each.region_id: damaged_entries(opened.base.store, each) for each in manifests}
        files = examine_base_files(opened.base, state, concurrency, self._context.progress, contents=False)
        damaged = {each.path: each.cause for each in (*files.problems, *incomplete_indexes(opened.base, state.version))}
        damaged |= {f"region {each.region_id}": each.evidence for each in census.damaged.values()}
        damaged |= {f"region {each.region_id}": gap for each in manifests if (gap := _gap(each, merged))}
        return plan_relocation(
            address_of(opened.base), record, examined, compare(record.memory, seen), damaged_wals, damaged
        )

    def _examine(
        self, region_id: RegionId, recorded: FlushedGeneration, *, is_merged: bool
    ) -> ExaminedGeneration | None:
        store = self._opened.base.store
        uri = store.uri_of(generation_path(region_id, recorded.path))
        try:
            dataset = open_generation(uri, store.storage_options)
            names = shared_files(dataset)
            stored = _recorded_addresses(uri, store.storage_options) if names else ()
            if names and recorded.wal_digest is None:
                entries, is_proven = self._read_entries(region_id, names), False
            else:
                entries, is_proven = check_contents(store, region_id, recorded), True
            damage = () if is_merged else RegionProof(store, None, contents=False).examine(region_id, recorded).damage
        except ObjectNotFoundError as error:
            if is_merged:
                return None  # It was merged, and collected meanwhile.
            return ExaminedGeneration(region_id, recorded, problem=f"{error.what}; run `memwal repair`")
        except CorruptionError as error:
            cause = error.facts.get("cause", "")
            return ExaminedGeneration(region_id, recorded, problem=f"{error.what} ({cause}); {error.remedy}")
        is_due = any(each != wal_of(uri) for each in stored)
        problem = "; ".join(f"{each.path}: {each.cause}" for each in damage)
        return ExaminedGeneration(region_id, recorded, stored, entries, is_proven, is_due, problem)

    def _read_entries(self, region_id: RegionId, names: dict[str, int | None]) -> int:
        """Verify the checksums of the entries of a flushed MemTable without a digest; return how many there are."""
        codec = LanceCodec({})
        for name in names:
            codec.read(self._opened.base.store, region_id, parse_numbered_name(name, LANCE_WAL_SUFFIX))
        return len(names)

    def _report(self, plan: RelocationPlan, outcome: JobOutcome) -> RelocateReport:
        seconds = self._opened.clock.monotonic() - self._began
        return RelocateReport(self._opened.uri, outcome, plan, seconds)


def _gap(manifest: RegionManifest, merged: Mapping[RegionId, int]) -> str:
    """Say which generations are nowhere; empty if none: a base table that was copied earlier has not merged them."""
    missing = next(missing_generations(manifest, merged.get(manifest.region_id, 0)), None)
    return f"generation {missing.start} is neither merged nor recorded; run `memwal repair`" if missing else ""


def _recorded_addresses(uri: str, storage_options: Mapping[str, str]) -> tuple[str, ...]:
    with translated("open a flushed MemTable", uri):
        bases = lance.dataset(uri, storage_options=dict(storage_options) or None).base_paths()
    return tuple(base.path for base in bases.values())
