"""Copy one moment of a table: find it, copy what is missing, publish it, prove it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from memwal_core.base_table import BaseTable, Sources
from memwal_core.coordination.job_key import JobKey
from memwal_core.coordination.lease import Lease, LeaseHeldError, LeaseKeeper
from memwal_core.errors import ConflictError, InvalidRequestError, ObjectNotFoundError
from memwal_core.failpoints import Failpoint
from memwal_core.flushed.write import rebase_flushed
from memwal_core.format.paths import JOURNAL_DIRECTORY, TABLE_VERSIONS_DIRECTORY, version_of_manifest
from memwal_core.jobs.backup.copying import Copier, GoneError
from memwal_core.jobs.backup.identity import Identify
from memwal_core.jobs.backup.pin import Pinner
from memwal_core.jobs.backup.plan import CopyMoment, Journal, files_to_copy
from memwal_core.jobs.backup.proof import prove
from memwal_core.jobs.backup.report import CopyReport
from memwal_core.jobs.backup.request import CopyRequest
from memwal_core.jobs.context import JobContext, OpenTable
from memwal_core.jobs.outcome import JobOutcome
from memwal_core.register import FIRST_VERSION, VersionedRegister
from memwal_core.storage import ObjectStore, open_store
from memwal_core.storage.address import canonical_uri, parse_address
from memwal_core.storage.concurrent import map_concurrently
from memwal_core.storage.options import environment_storage_options, require_used

COPY_PINNED = Failpoint("copy.pinned")
COPY_FILES = Failpoint("copy.files")
COPY_DOCUMENTS = Failpoint("copy.documents")
COPY_PUBLISHED = Failpoint("copy.published")
COPY_PROVEN = Failpoint("copy.proven")

_DELETING_JOBS = (JobKey("gc"), JobKey("compact"))
_MOMENTS = 5
_LEASE_WAIT_S = 0.5
_LEASE_WAITS = 60

_log = logging.getLogger(__name__)


def copy_table(context: JobContext, request: CopyRequest, identify: Identify) -> CopyReport:
    """Copy one moment of a table to ``request.target``; a second call finishes what the first one began.

    Raises:
        InvalidRequestError: The target is not empty and no half-done copy of this table, or was changed since it became
            a table, or lies inside the table.
        LeaseHeldError: Garbage collection or compaction is under way. Try again.
        ConflictError: The table changed too often, or another copy to this target is under way. Try again.
        CorruptionError: The table is damaged, or the copy is not what was copied.
        UnavailableError: Storage failed; run again, what was copied stands.
    """
    return _Copying(context, request, identify).run()


class _Copying:
    def __init__(self, context: JobContext, request: CopyRequest, identify: Identify) -> None:
        self._context = context
        self._request = request
        self._identify = identify
        self._opened = opened = context.opened
        self._began = opened.clock.monotonic()
        _require_apart(opened.uri, request.target)
        self._target = _open_target(opened, request)
        sources = Sources(opened.clock, opened.base.rng)
        self._copy = OpenTable.of(BaseTable(self._target, settings=opened.settings, sources=sources))
        self._journals = VersionedRegister(self._target, JOURNAL_DIRECTORY, ".json")
        self._noted = FIRST_VERSION - 1
        self._leases: tuple[Lease, ...] = ()

    def run(self) -> CopyReport:
        journal = self._journal()
        if journal is not None and journal.is_complete:
            return self._report(JobOutcome.NOTHING_TO_DO, journal.moment, {})
        if journal is not None:
            self._require_unused(journal.moment)
        if self._request.dry_run:
            return self._report(JobOutcome.PLANNED, journal.moment if journal is not None else self._pin(), {})
        with self._nothing_is_deleted():
            journal = self._copied(journal)
            self._publish(journal)
            proof = prove(self._copy, journal.moment)
            self._context.failpoints.hit(COPY_PROVEN)
            self._note(replace(journal, is_complete=True))
        return self._report(JobOutcome.DONE, journal.moment, proof)

    def _copied(self, journal: Journal | None) -> Journal:
        """Copy the files of one moment; of another one if files of the first are gone or changed."""
        last = ""
        for _ in range(_MOMENTS):
            if journal is None:
                journal = Journal(self._opened.uri, self._request.info.name, self._pin())
                self._note(journal)
            self._context.failpoints.hit(COPY_PINNED)
            try:
                self._copy_files(journal.moment)
            except GoneError as error:
                last = str(error)
                _log.info("a file is gone, taking another moment [table=%s, file=%s]", self._opened.uri, last)
                journal = journal.followed_by(self._pin())
                self._note(journal)
                continue
            return journal
        raise ConflictError(
            "files of the table were deleted or changed while it was copied, each time",
            remedy="stop the program that deletes or changes files of the table, and run again",
            table=self._opened.uri,
            moments=_MOMENTS,
            last=last,
        )

    def _copy_files(self, moment: CopyMoment) -> None:
        present = {each.path: each.size_bytes for each in self._target.list_objects("")}
        files = files_to_copy(moment, present)

        def before(number: int) -> None:
            self._guard()
            self._context.progress("files copied", number, len(files))
            self._context.failpoints.hit(COPY_FILES)

        def progressed() -> None:
            for lease in self._leases:
                lease.progressed()

        source, concurrency = self._opened.base.store, self._opened.settings.storage.concurrency
        Copier(source, self._target, concurrency, before=before, progressed=progressed).copy(files)

    def _publish(self, journal: Journal) -> None:
        """Write what is small, and last of all the manifest that makes the copy a table; a table stays as it is."""
        self._guard()
        if self._target.head(journal.moment.manifest[0]) is not None:
            return
        self._context.failpoints.hit(COPY_DOCUMENTS)
        for path in journal.superseded:
            self._target.delete(path)
        documents, concurrency = journal.moment.documents, self._opened.settings.storage.concurrency
        map_concurrently(lambda path: self._write(path, documents[path]), documents, concurrency)
        for manifest in self._copy.manifests.load_many(self._copy.manifests.region_ids()):
            for recorded in manifest.flushed_generations:
                try:
                    rebase_flushed(self._target, manifest.region_id, recorded)
                except ObjectNotFoundError:
                    continue  # Merged, and collected at the original.
        self._target.put_if_absent(*journal.moment.manifest)
        self._context.failpoints.hit(COPY_PUBLISHED)

    def _journal(self) -> Journal | None:
        newest = self._journals.latest()
        if newest is None:
            found = next(iter(self._target.list_objects("")), None)
            if found is not None:
                raise self._not_empty(holds=found.path)
            return None
        self._noted = newest.version
        journal = Journal.decode(newest.data, self._target.uri_of(self._journals.path(newest.version)))
        if (journal.source, journal.kind) != (self._opened.uri, self._request.info.name):
            raise self._not_empty(holds=f"a {journal.kind} of {journal.source}")
        return journal

    def _require_unused(self, moment: CopyMoment) -> None:
        """Refuse to go on with a copy that was used since it became a table: its rows would be taken for remains."""
        names = (each.path.rpartition("/")[2] for each in self._target.list_objects(TABLE_VERSIONS_DIRECTORY))
        later = {version_of_manifest(name) or moment.version for name in names} - {moment.version}
        if later:
            raise InvalidRequestError(
                "the copy became a table and was changed since, before it was proven",
                remedy="keep it, or name another target; `memwal doctor --deep` examines it as it is",
                target=self._target.uri,
                copied_version=moment.version,
                version=max(later),
            )

    def _not_empty(self, **facts: object) -> InvalidRequestError:
        return InvalidRequestError(
            f"the target of a {self._request.info.name} must be empty, or a half-done one of the same table",
            remedy="name another target, or empty this one",
            target=self._target.uri,
            **facts,
        )

    def _pin(self) -> CopyMoment:
        self._context.progress("looking", 0, None)
        return self._identify(Pinner(self._opened).pin(), self._opened.base, self._copy.base)

    def _note(self, journal: Journal) -> None:
        """Write the journal, unless another copy to this target has gone on since it was read (``ConflictError``)."""
        self._journals.create(self._noted + 1, journal.encode())
        self._noted += 1

    def _write(self, path: str, data: bytes) -> None:
        self._target.put(path, data)
        self._target.sync_objects([path])

    def _guard(self) -> None:
        self._context.guard()
        for lease in self._leases:
            lease.check()

    @contextmanager
    def _nothing_is_deleted(self) -> Iterator[None]:
        """Hold the leases of the jobs that delete; other programs that delete are noticed by what is gone."""
        holder = self._context.holder or self._opened.new_holder()
        every_s = self._opened.settings.lease.renew_after_s / 2
        with ExitStack() as held:
            leases = []
            for key in _DELETING_JOBS:
                leases.append(held.enter_context(self._acquired(key, holder)))
                held.enter_context(LeaseKeeper(leases[-1], every_s))
            self._leases = tuple(leases)
            yield

    def _acquired(self, key: JobKey, holder: str) -> Lease:
        for _ in range(_LEASE_WAITS):
            try:
                return self._opened.leases.acquire(key, holder)
            except LeaseHeldError:
                self._opened.clock.sleep(_LEASE_WAIT_S)
        return self._opened.leases.acquire(key, holder)

    def _report(self, outcome: JobOutcome, moment: CopyMoment, proof: dict[str, int]) -> CopyReport:
        seconds = self._opened.clock.monotonic() - self._began
        name = self._request.info.name
        return CopyReport(name, self._opened.uri, self._target.uri, outcome, moment, proof, seconds)


def _open_target(opened: OpenTable, request: CopyRequest) -> ObjectStore:
    """Open the target with its own options, else those of a table beside it, else those of the environment."""
    require_used(request.target_options, request.target)
    is_beside = parse_address(request.target).kind is opened.base.store.kind
    shared = opened.base.storage_options if is_beside else environment_storage_options()
    options = request.target_options or dict(shared)
    return open_store(request.target, storage_options=options or None, settings=opened.settings.storage)


def _require_apart(source: str, target: str) -> None:
    first, second = f"{canonical_uri(source)}/", f"{canonical_uri(target)}/"
    if first.startswith(second) or second.startswith(first):
        raise InvalidRequestError(
            "the target of a copy and the table must not lie inside of each other",
            remedy="name another target",
            table=source,
            target=target,
        )
