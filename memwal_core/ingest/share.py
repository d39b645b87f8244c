"""Writing a region's rows of a batch in one task, safe against any number of other attempts."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from memwal_core.base_table import BaseTable
from memwal_core.errors import ConflictError, FencedError, InvalidRequestError, UnavailableError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.ids import RegionId
from memwal_core.ingest.batch import BatchId
from memwal_core.ingest.chunks import deduplicated, in_chunks
from memwal_core.ingest.records import BatchDone, BatchRecords, ShareDone
from memwal_core.region import ManifestStore
from memwal_core.writer import RegionWriter, Takeover
from memwal_core.writer.claim.takeover import require_no_live_writer, tails
from memwal_core.writer.other_specs import OtherSpecs

_log = logging.getLogger(__name__)
_POLL_S = 0.2
_NOTE_S = 2.0
"""Maximum delay between a claim and its note."""


@dataclass(frozen=True, slots=True)
class RegionShare:
    """What one task writes.

    Attributes:
        region_id: The region, which exists.
        takeover: Whether a foreign writer that seems alive is stopped or causes an error. Attempts of the same batch,
            and forgotten attempts of finished batches, are always stopped.
        rows: How many rows were checked; None if they cannot have changed since.
    """

    batch: BatchId
    value: str
    region_id: RegionId
    takeover: Takeover = Takeover.FAIL
    attempt: str = "1"
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class ShareOutcome:
    """How a share ended.

    Attributes:
        rows: Rows of the share, as far as records tell.
        written_before: Whether another attempt had written them.
        attempt: The attempt that wrote them.
    """

    region_id: str
    value: str
    rows: int
    deletes: int
    written_before: bool
    attempt: str


def write_share(table: BaseTable, share: RegionShare, tables: Iterable[pa.Table]) -> ShareOutcome:
    """Write the rows of a share, unless that has been done; on return it is durable, flushed and recorded.

    Args:
        table: The base table.
        share: What to write.
        tables: All rows of the batch for the region: the table's columns and ``_tombstone``. Rows of one key are
            adjacent, and the last of them wins. Not read if there is nothing to do.

    Raises:
        ConflictError: The region seems to have a live foreign writer, see ``takeover``, or rows wait in regions of
            other specs. Nothing was written.
        FencedError: A foreign writer took the region over. Decide who may write it, then run the batch again.
        UnavailableError: Storage failed, or another attempt took the region over and died. Write the share again.
        CommitUnknownError: Storage did not answer. Write the share again.
        InvalidRequestError: The table's schema has changed since the rows were checked, or more or fewer rows came
            than were checked, which are not recorded as written. Run the batch again.
        CorruptionError: The region contradicts itself; follow the runbook that the error names.
    """
    return _ShareTask(table, share).run(tables)


class _ShareTask:
    def __init__(self, table: BaseTable, share: RegionShare) -> None:
        self._table = table
        self._share = share
        self._records = BatchRecords(table.store, table.clock)
        self._manifests = ManifestStore(
            table.store, table.ids, settings=table.settings.storage, clock=table.clock, rng=table.rng
        )

    def run(self, tables: Iterable[pa.Table]) -> ShareOutcome:
        share = self._share
        found = self._records.settled(share.batch, share.value)
        if found is not None:
            return self._written_before(found)
        try:
            expected = self._prepare_claim()
            with RegionWriter.open(self._table, share.region_id) as writer:
                if writer.writer_epoch != expected:
                    self._records.note_claim(share.batch, share.region_id, writer.writer_epoch)
                # Read after the claim: attempts with an older claim can acknowledge nothing more, and one that
                # finished before has left its record.
                found = self._records.settled(share.batch, share.value)
                if found is not None:
                    return self._written_before(found)
                done = self._write(writer, tables)
        except FencedError as error:
            return self._written_before(self._wait_for_rival(error))
        recorded = self._records.record_share(share.batch, done)
        return ShareOutcome(
            recorded.region_id, share.value, recorded.rows, recorded.deletes, recorded != done, recorded.attempt
        )

    def _prepare_claim(self) -> int:
        """Check that the region may be claimed; return the epoch that the claim gets unless a rival is faster."""
        share, clock = self._share, self._table.clock
        manifest = self._manifests.load(share.region_id)
        until = clock.monotonic() + _NOTE_S
        while share.takeover is Takeover.FAIL:
            claim = self._records.claim(share.batch, share.region_id)
            if claim is not None and self._allows(*claim, manifest.writer_epoch):
                break
            try:
                quiet_s = self._table.settings.writer.takeover_quiet_s
                require_no_live_writer(self._table.store, manifest, clock.now(), quiet_s)
            except ConflictError:
                # There is room for one note: an attempt that is slower than another one replaces its newer note.
                if claim is None or claim[0] != share.batch or clock.monotonic() >= until:
                    raise
                clock.sleep(_POLL_S)
                manifest = self._manifests.load(share.region_id)
            else:
                break
        # Noted before the claim, so that the next attempt recognises one that dies right after claiming.
        self._records.note_claim(share.batch, share.region_id, manifest.writer_epoch + 1)
        return manifest.writer_epoch + 1

    def _allows(self, claimant: BatchId, noted: int, epoch: int) -> bool:
        """Tell whether a note says that the writer of an epoch may be stopped.

        That is one of this batch or of a finished one of its stream, or somebody whom an attempt of this batch was
        about to stop, for a reason that still holds.
        """
        if noted == epoch:
            return claimant == self._share.batch or self._records.done(claimant) is not None
        return noted > epoch and claimant == self._share.batch

    def _write(self, writer: RegionWriter, tables: Iterable[pa.Table]) -> ShareDone:
        table, share = self._table, self._share
        state, spec_id = table.state(), writer.view().manifest.region_spec_id
        OtherSpecs(table, share.takeover).require_rest(state, spec_id)
        key = state.require_primary_key().columns
        counted = _Counted(tables)
        for chunk in in_chunks(deduplicated(counted, key), self._table.settings.ingest.put_bytes):
            deleted = chunk.column(TOMBSTONE_COLUMN)
            rows = chunk.drop_columns([TOMBSTONE_COLUMN])
            if not pc.any(deleted).as_py():
                writer.put(rows)
                continue
            upserts, deletes = rows.filter(pc.invert(deleted)), rows.filter(deleted)
            if upserts.num_rows:
                writer.put(upserts)
            writer.delete(deletes.select(list(key)))
        self._require_checked(counted.rows)
        writer.flush()
        _log.info(
            "share written [batch=%s, region_id=%s, attempt=%s, rows=%d, writer_epoch=%d]",
            *_facts(share),
            counted.rows,
            writer.writer_epoch,
        )
        return ShareDone(
            share.value, str(share.region_id), counted.rows, counted.deletes, writer.writer_epoch, share.attempt
        )

    def _require_checked(self, rows: int) -> None:
        share = self._share
        if share.rows not in (None, rows):
            raise InvalidRequestError(
                "the rows of the batch are not those that were checked; some of them may be written",
                remedy="run the batch again, from a source that gives the same rows whenever it is read: Spark reads "
                "again what a lost executor had",
                batch=str(share.batch),
                region_id=str(share.region_id),
                rows_checked=share.rows,
                rows_found=rows,
            )

    def _wait_for_rival(self, error: FencedError) -> ShareDone | BatchDone:
        """Wait until the attempt that overtook this one has finished, instead of fencing it in turn.

        Raises:
            FencedError: It was a foreign writer.
            UnavailableError: It makes no progress, or belongs to another batch of the stream.
        """
        share, clock = self._share, self._table.clock
        wait_s, began = self._table.settings.ingest.rival_wait_s, clock.monotonic()
        last_position, deadline = None, began + wait_s
        _log.info("region was taken over by another writer [batch=%s, region_id=%s, attempt=%s]", *_facts(share))
        while True:
            found = self._records.settled(share.batch, share.value)
            if found is not None:
                return found
            manifest = self._manifests.load(share.region_id)
            claimant = self._records.claimant(share.batch, share.region_id, manifest.writer_epoch)
            if claimant is None and clock.monotonic() >= began + min(wait_s, _NOTE_S):
                raise error
            # Positions, not times: a store's clock may not tell two entries apart.
            position = (manifest.version, tails(self._table.store, manifest))
            if position != last_position:
                last_position, deadline = position, clock.monotonic() + wait_s
            if claimant not in (None, share.batch) or clock.monotonic() >= deadline:
                raise UnavailableError(
                    "another attempt of this stream took the region over and has not written these rows",
                    remedy="write the share again",
                    batch=str(share.batch),
                    rival=str(claimant),
                    region_id=str(share.region_id),
                    writer_epoch=manifest.writer_epoch,
                ) from error
            clock.sleep(_POLL_S)

    def _written_before(self, found: ShareDone | BatchDone) -> ShareOutcome:
        share = self._share
        if isinstance(found, ShareDone):
            return ShareOutcome(found.region_id, share.value, found.rows, found.deletes, True, found.attempt)
        return ShareOutcome(str(share.region_id), share.value, 0, 0, True, "")


def _facts(share: RegionShare) -> tuple[BatchId, RegionId, str]:
    return share.batch, share.region_id, share.attempt


class _Counted:
    """Passes tables on and counts their rows."""

    def __init__(self, tables: Iterable[pa.Table]) -> None:
        self._tables = tables
        self.rows = 0
        self.deletes = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._tables:
            self.rows += table.num_rows
            self.deletes += pc.sum(table.column(TOMBSTONE_COLUMN)).as_py() or 0
            yield table
