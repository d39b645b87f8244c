"""The checks after a merge: whether the base table holds what it should."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import great_expectations.expectations as gxe
import lance
from great_expectations.expectations import Expectation
from pyspark.sql import SparkSession

from memwal_core.errors import CorruptionError, InvalidRequestError, ObjectNotFoundError
from memwal_core.format.columns import TOMBSTONE_COLUMN
from memwal_core.jobs.merge.survey import merge_target
from memwal_core.jobs.sharing.sharing import Sharing
from memwal_core.quality.checks.answers import compare_answers
from memwal_core.quality.checks.recount import count_keys_of, recount
from memwal_core.quality.expectations import ExpectationFinding, ExpectationRun, as_check
from memwal_core.quality.model import Check, CheckResult, Result
from memwal_core.quality.plan import MergeWindow, QualityPlan, row_changes
from memwal_core.quality.table import QualityTable
from memwal_core.text import show_count


class AfterMerge:
    """The checks of one version of the base table."""

    def __init__(
        self,
        quality: QualityTable,
        plan: QualityPlan,
        spark: SparkSession,
        sharing: Sharing,
        examination: ExpectationRun,
    ) -> None:
        self._quality = quality
        self._plan = plan
        self._spark = spark
        self._sharing = sharing
        self._examination = examination
        self._subject = f"version {plan.version}"

    def run(self) -> tuple[CheckResult, ...]:
        """Run all checks."""
        dataset = self._quality.table.dataset(self._plan.version)
        return (
            *self._keys(dataset),
            *self._columns(dataset),
            *self._merges(),
            *self._indexes(dataset),
            *self._view(),
        )

    def _keys(self, dataset: lance.LanceDataset) -> Iterator[CheckResult]:
        try:
            found = count_keys_of(self._sharing, dataset, self._quality.table.key_columns(dataset))
        except CorruptionError as error:
            # Lance refuses to read NULL in a key column.
            for check in (Check.KEY_UNIQUE, Check.KEY_NOT_NULL):
                yield CheckResult(check, Result.FAILED, self._subject, str(error))
            return
        beyond, incomplete = found.counts.rows - found.counts.keys, found.incomplete
        frame = self._spark.createDataFrame([(beyond, incomplete)], "beyond_first long, incomplete long")
        expectations: list[Expectation] = [
            gxe.ExpectColumnValuesToBeBetween(column="beyond_first", max_value=0, meta=as_check(Check.KEY_UNIQUE)),
            gxe.ExpectColumnValuesToBeBetween(column="incomplete", max_value=0, meta=as_check(Check.KEY_NOT_NULL)),
        ]
        facts = f"rows {found.counts.rows}, keys {found.counts.keys}"
        evidence = {
            Check.KEY_UNIQUE: (f"{facts}, for example {list(found.counts.repeated)}" if beyond else facts, beyond),
            Check.KEY_NOT_NULL: (f"rows {found.counts.rows}, with NULL in their key {incomplete}", incomplete),
        }
        for result in self._results(self._examination.expect("keys of the base table", frame, expectations)):
            yield CheckResult(result.check, result.result, self._subject, *evidence[result.check])

    def _columns(self, dataset: lance.LanceDataset) -> list[CheckResult]:
        frame = self._spark.createDataFrame([(name,) for name in dataset.schema.names], "column string")
        expectation = gxe.ExpectColumnValuesToNotBeInSet(
            column="column", value_set=[TOMBSTONE_COLUMN], meta=as_check(Check.NO_TOMBSTONE_COLUMN)
        )
        return self._results(self._examination.expect("columns of the base table", frame, [expectation]))

    def _merges(self) -> Iterator[CheckResult]:
        window = self._plan.window
        if window is None:
            reason = "no retained version is older than the last merge"
            for check in (Check.ROW_ARITHMETIC, Check.MERGED_KEYS_PRESENT, Check.DELETED_KEYS_ABSENT):
                yield CheckResult(check, Result.SKIPPED, self._subject, reason)
            return
        yield from self._recounted(window)
        yield from self._stable(window)

    def _recounted(self, window: MergeWindow) -> Iterator[CheckResult]:
        subject = f"versions {window.before.version} to {window.after.version}"
        generations, gone = self._quality.merged_generations(window.spans)
        table = self._quality.table
        counts = None
        if not gone:
            try:
                counts = recount(
                    self._sharing,
                    table.dataset(window.before.version),
                    table.dataset(window.after.version),
                    generations,
                    merge_target(table.state(window.after.version)),
                )
            except ObjectNotFoundError as error:
                gone = [str(error)]
        if counts is None:
            reason = f"a merged generation is already collected: {gone[0]}"
            for check in (Check.ROW_ARITHMETIC, Check.MERGED_KEYS_PRESENT, Check.DELETED_KEYS_ABSENT):
                yield CheckResult(check, Result.SKIPPED, subject, reason)
            return
        columns = "rows long, expected_rows long, present_keys long, written_keys long, undead_keys long"
        row = (counts.rows, counts.expected_rows, counts.present_keys, counts.written_keys, counts.undead_keys)
        expectations: list[Expectation] = [
            gxe.ExpectColumnPairValuesToBeEqual(
                column_A="rows", column_B="expected_rows", meta=as_check(Check.ROW_ARITHMETIC)
            ),
            gxe.ExpectColumnPairValuesToBeEqual(
                column_A="present_keys", column_B="written_keys", meta=as_check(Check.MERGED_KEYS_PRESENT)
            ),
            gxe.ExpectColumnValuesToBeBetween(
                column="undead_keys", max_value=0, meta=as_check(Check.DELETED_KEYS_ABSENT)
            ),
        ]
        frame = self._spark.createDataFrame([row], columns)
        facts = ", ".join(f"{name.split()[0]} {value}" for name, value in zip(columns.split(", "), row, strict=True))
        for result in self._results(self._examination.expect("the last merge", frame, expectations)):
            yield CheckResult(result.check, result.result, subject, facts)

    def _stable(self, window: MergeWindow) -> list[CheckResult]:
        pairs = row_changes(window)
        if not pairs:
            return []
        frame = self._spark.createDataFrame(pairs, "version long, rows_before long, rows long")
        expectation = gxe.ExpectColumnPairValuesToBeEqual(
            column_A="rows_before", column_B="rows", meta=as_check(Check.ROWS_STABLE)
        )
        findings = self._examination.expect("versions since the merge", frame, [expectation], ["version"])
        # The same words however many versions have come since, of which this tells nothing.
        changed = "; ".join(
            f"version {pair[0]}: {pair[1]} -> {show_count(pair[2], 'row')}" for pair in pairs if pair[1] != pair[2]
        )
        return [replace(result, evidence=changed or result.evidence) for result in self._results(findings)]

    def _indexes(self, dataset: lance.LanceDataset) -> Iterator[CheckResult]:
        for name, reason in (self._plan.unquestioned or {}).items():
            yield CheckResult(Check.INDEXED_ANSWER, Result.SKIPPED, f"index {name}", reason)
        for index in self._plan.indexes:
            try:
                answers = compare_answers(dataset, index, self._quality.settings.sample_keys)
            except (InvalidRequestError, CorruptionError) as error:
                # An index that cannot be read does not give the scan's answer.
                yield CheckResult(Check.INDEXED_ANSWER, Result.FAILED, f"index {index.name}", str(error))
                continue
            if not answers:
                reason = "the column has no values, or its type cannot be written as SQL"
                yield CheckResult(Check.INDEXED_ANSWER, Result.SKIPPED, f"index {index.name}", reason)
                continue
            rows = [(answer.index, answer.question, answer.indexed, answer.scanned) for answer in answers]
            frame = self._spark.createDataFrame(rows, "index string, question string, indexed string, scanned string")
            expectation = gxe.ExpectColumnPairValuesToBeEqual(
                column_A="indexed", column_B="scanned", meta=as_check(Check.INDEXED_ANSWER)
            )
            for finding in self._examination.expect(f"index {index.name}", frame, [expectation]):
                yield _result(finding, f"index {index.name}, {show_count(len(answers), 'sample')}")

    def _view(self) -> Iterator[CheckResult]:
        subject = "what readers see"
        try:
            looked = self._quality.look_at_view()
        except (InvalidRequestError, CorruptionError) as error:
            # An unreadable view is not what readers should see.
            yield CheckResult(Check.LSM_VIEW, Result.FAILED, subject, str(error))
            return
        rows = [(sight.question, sight.seen, sight.expected) for sight in looked.sights]
        frame = self._spark.createDataFrame(rows, "question string, seen string, expected string")
        expectation = gxe.ExpectColumnPairValuesToBeEqual(
            column_A="seen", column_B="expected", meta=as_check(Check.LSM_VIEW)
        )
        seen = f"{show_count(looked.generations, 'flushed MemTable')}, {show_count(len(rows), 'question')}"
        where = f"{subject}: version {looked.version}, {seen}"
        for finding in self._examination.expect(subject, frame, [expectation], ["question"]):
            yield _result(finding, where)

    def _results(self, findings: Sequence[ExpectationFinding]) -> list[CheckResult]:
        return [_result(finding, self._subject) for finding in findings]


def _result(finding: ExpectationFinding, subject: str) -> CheckResult:
    result = Result.PASSED if finding.success else Result.FAILED
    return CheckResult(finding.check, result, subject, finding.evidence, finding.count)
