"""What may be asked of one table beyond its status: health, past, and reasons."""

from __future__ import annotations

import pyarrow as pa

from memwal_core.base_table import BaseTable
from memwal_core.clock import Clock
from memwal_core.ids import RegionId
from memwal_core.maintenance.doctor import DoctorReport, Examiner, examine_table
from memwal_core.maintenance.insight.explain import RegionAnswer
from memwal_core.maintenance.insight.why import WhyParts, why
from memwal_core.maintenance.jobs import JobKey
from memwal_core.maintenance.lease import LeaseStore
from memwal_core.maintenance.ledger import Ledger, RunRecord
from memwal_core.maintenance.merge.survey import Surveyor
from memwal_core.manifest import ManifestStore
from memwal_core.settings import Settings


class TableInsight:
    """Answers about one table. Nothing here changes the table; the ledger and leases are beside it.

    Args:
        table: The base table.
        manifests: Its region manifests.
        settings: All settings.
        clock: Time.
    """

    def __init__(self, table: BaseTable, manifests: ManifestStore, settings: Settings, clock: Clock) -> None:
        """Keep the parts; nothing is read."""
        self._table = table
        self._manifests = manifests
        self._settings = settings
        self._clock = clock
        self.ledger = Ledger(table.store, table.ids, settings=settings.ledger, clock=clock)
        self.leases = LeaseStore(table.store, table.ids, settings=settings.lease, clock=clock, rng=table.rng)

    def doctor(self) -> DoctorReport:
        """Check every invariant of the table; see ``docs/doctor.md`` for the findings.

        Raises:
            UnavailableError: Storage failed. Try again.
        """
        return examine_table(Examiner(self._table, self._manifests, self.ledger, self._settings))

    def why(self, region_id: RegionId) -> RegionAnswer:
        """Tell for each job whether it would act on a region now, and why.

        Raises:
            ObjectNotFoundError: There is no such region.
            InvalidRequestError: The table has no MemWAL index, or no usable primary key.
            UnavailableError: Storage failed.
            CorruptionError: A manifest contradicts itself. Ask the doctor.
        """
        surveyor = Surveyor(self._table, self._table.store, self._manifests, self._settings.storage.concurrency)
        parts = WhyParts(self._table, self._manifests, surveyor, self.ledger, self.leases, self._settings)
        return why(parts, region_id)

    def history(self, job: str | None = None) -> pa.Table:
        """Return the remembered runs of one job or of all (``RUNS_SCHEMA``), the newest last.

        Raises:
            UnavailableError: Storage failed.
            CorruptionError: A history cannot be read.
        """
        return self.ledger.table(job)

    def new_holder(self) -> str:
        """Return a name for whoever runs a job without saying who; no other run has it."""
        return self._table.ids.commit_id().hex()

    def new_run(self, key: JobKey, holder: str, fencing_token: int = 0) -> RunRecord:
        """Return the record of a run that begins now, for ``ledger.run``.

        Args:
            key: The job and what it works on.
            holder: Who runs it.
            fencing_token: Token of its lease; 0 = it runs without one.
        """
        return RunRecord(key, self._table.ids.commit_id().hex(), holder, self._clock.now(), fencing_token)
