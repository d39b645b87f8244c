"""The quality of one table without Spark: the plan, the last results, the quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memwal_core.base_table import BaseTable, TableState, retained_versions
from memwal_core.errors import InvalidRequestError, ObjectNotFoundError
from memwal_core.format.document import encode_document, parse_document
from memwal_core.format.paths import generation_path, quality_result_path
from memwal_core.ids import RegionId
from memwal_core.jobs.merge.survey import MergeSurveyor, merge_target
from memwal_core.quality.checks.audit import AuditTask, routing_of
from memwal_core.quality.checks.view import ViewSights, look_at_view
from memwal_core.quality.model import QualityReport, Stage
from memwal_core.quality.plan import QualityPlan, VersionFacts, plan_after, plan_before
from memwal_core.region import ManifestStore
from memwal_core.region.audited import Audited, AuditedStore
from memwal_core.region.holes import holes
from memwal_core.region.quarantine import Quarantined, QuarantineStore
from memwal_core.settings import Settings
from memwal_core.storage.limits import MAX_NOTE_BYTES


class QualityTable:
    """The quality of one table."""

    def __init__(self, table: BaseTable, manifests: ManifestStore, settings: Settings) -> None:
        self.table = table
        self.settings = settings.quality
        self.quarantine = QuarantineStore(table.store)
        self._manifests = manifests
        self._concurrency = settings.storage.concurrency

    def plan(self, stage: Stage, *, since: int | None = None) -> QualityPlan:
        """Decide what a stage would check. Changes nothing.

        Args:
            stage: Which checks.
            since: After a merge: recount everything merged after this version, not only the last merge.

        Raises:
            InvalidRequestError: The table cannot be merged into, or ``since`` is not retained. Correct the request.
            CorruptionError: A manifest contradicts itself. Run ``memwal doctor``.
        """
        if stage is Stage.BEFORE:
            surveyor = MergeSurveyor(self.table, self.table.store, self._manifests, self._concurrency)
            survey, _ = surveyor.survey()
            return plan_before(survey, self.quarantine.released())
        state = self.table.state()
        columns = {number: name for name, number in state.field_ids.items()}
        return plan_after(
            self.table.uri, self._versions(state, since), self.table.indexes(state.version), columns, since
        )

    def audit_tasks(self, plan: QualityPlan) -> list[AuditTask]:
        """Return what executors need to audit the flushed MemTables of a plan."""
        state = self.table.state()
        state.require_primary_key()
        target = merge_target(state)
        specs = {spec.spec_id: spec for spec in state.require_details().region_specs}
        regions = sorted({audit.region_id for audit in plan.audits})
        routing = {
            manifest.region_id: routing_of(manifest, specs, target)
            for manifest in self._manifests.load_many(regions, self._concurrency)
        }
        return [
            AuditTask(
                audit.region_id,
                audit.generation.generation,
                audit.generation.uri,
                target,
                routing[audit.region_id],
                audit.generation.evidence if audit.generation.defect is not None else "",
            )
            for audit in plan.audits
        ]

    def merged_generations(
        self, spans: Mapping[RegionId, tuple[int, int]]
    ) -> tuple[list[list[tuple[int, str]]], list[str]]:
        """Return the flushed MemTables that a merge took; ``spans`` is the progress of each region before and after.

        Returns:
            Per region, (generation, address) ascending; and those that manifests no longer record.
        """
        found, gone = [], []
        for manifest in self._manifests.load_many(sorted(spans), self._concurrency):
            merged, through = spans[manifest.region_id]
            recorded = {each.generation: each.path for each in manifest.flushed_generations}
            for lost in holes(recorded, merged + 1, through + 1):
                span = f"generation {lost[0]}" if lost[0] == lost[-1] else f"generations {lost[0]} to {lost[-1]}"
                gone.append(f"region {manifest.region_id} {span}")
            found.append(
                [
                    (number, self.table.store.uri_of(generation_path(manifest.region_id, path)))
                    for number, path in sorted(recorded.items())
                    if merged < number <= through
                ]
            )
        return found, gone

    def look_at_view(self) -> ViewSights:
        """Compare what readers see of the table with what it must show; see ``quality.view``."""
        return look_at_view(self.table, self._manifests, self.settings.sample_keys)

    def record(self, report: QualityReport) -> None:
        """Store the report as the newest of its stage."""
        self.table.store.put(quality_result_path(report.stage.value), encode_document(report.to_dict(), indent=2))

    def newest(self, stage: Stage) -> dict[str, Any] | None:
        """Return the newest report of a stage as JSON values; None if there is none, or if it is unreadable."""
        try:
            data = self.table.store.get(quality_result_path(stage.value), MAX_NOTE_BYTES)
        except ObjectNotFoundError:
            return None
        try:
            document = parse_document(data)
        except ValueError:
            return None  # Only for display; the next run replaces it.
        return document if isinstance(document, dict) else None

    def audited(self, suites: str) -> Audited:
        """Return what the last audit by some suites saw; ``suites`` is their digest."""
        return AuditedStore(self.table.store, suites).load()

    def record_audit(self, plan: QualityPlan, unreadable: Mapping[tuple[RegionId, int], str], suites: str) -> None:
        """Record what an audit saw, and what of it could not be read; merges behind the gate take the rest."""
        seen: dict[RegionId, dict[str, str]] = {}
        for audit in plan.audits:
            why = unreadable.get((audit.region_id, audit.generation.generation), "")
            seen.setdefault(audit.region_id, {})[audit.generation.directory] = why
        AuditedStore(self.table.store, suites).record(self.table.clock.now(), seen)

    def release(self, region_id: RegionId, generation: int) -> Quarantined:
        """Release a flushed MemTable from quarantine: the next merge takes it as it is.

        Raises:
            InvalidRequestError: It is not in quarantine.
        """
        return self.quarantine.release(region_id, generation, self.table.clock.now())

    def _versions(self, state: TableState, since: int | None) -> list[VersionFacts]:
        """Return the newest retained versions, ascending; at least the newest."""
        retained = [
            each
            for each in retained_versions(self.table, self._concurrency)
            if each.branch is None and each.enabled and not each.legacy and each.version <= state.version
        ]
        if since is not None and since not in {each.version for each in retained}:
            raise InvalidRequestError(
                "this version of the table is not retained", remedy="name a retained version", version=since
            )
        chosen = retained[-self.settings.history :]
        if since is not None and since < chosen[0].version:
            chosen = [each for each in retained if each.version >= since]
        return [
            VersionFacts(each.version, self.table.dataset(each.version).count_rows(), each.merged) for each in chosen
        ]
