"""Running Great Expectations on Spark DataFrames, and reading its results.

Importing this module takes seconds: only the quality job and its tests do.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import great_expectations as gx
import pandas as pd
from great_expectations.checkpoint import UpdateDataDocsAction
from great_expectations.data_context.types.base import ProgressBarsConfig
from great_expectations.expectations import Expectation
from pyspark.sql import DataFrame

from memwal_core.errors import InvalidRequestError, UnavailableError
from memwal_core.quality.model import Check

_SITE = "memwal"
_SHOWN = 5
# Of suites: they become names of files in Data Docs.
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]{1,100}")
_LONGEST_SHOWN = 200
_LONGEST_CAUSE = 1000
_UNREAD = re.compile(
    r"memwal_core\.errors\.(?:UnavailableError|StoreRefusedError): .*|ExecutorLostFailure.*|"
    r".*(?:OutOfMemoryError|Py4JNetworkError|SparkContext was shut ?down|SparkContext has been shutdown).*"
)
"""What the text of an exception has if it says nothing of the rows."""

Suite = tuple[str, Sequence[Expectation]]
"""The name of a user's suite, and its expectations."""

# It sets its own level to INFO, and tells of each temporary directory.
logging.getLogger("great_expectations.data_context.types.base").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class ExpectationFinding:
    """The result of one expectation.

    Attributes:
        rows: Failing rows: values of the identifying columns, if any were named.
        count: Failing rows or values, where Great Expectations counts them.
    """

    check: Check
    success: bool
    rows: tuple[Mapping[str, Any], ...]
    evidence: str
    count: int = 0


class ExpectationRun:
    """One run of Great Expectations with its own context, and a Data Docs site in ``docs`` unless that is None."""

    def __init__(self, docs: Path | None = None, engine: Literal["spark", "pandas"] = "spark") -> None:
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
        self._actions: list[Any] = []
        if docs is not None:
            self._context.add_data_docs_site(_SITE, _site(docs))
            self._actions = [UpdateDataDocsAction(name="docs", site_names=[_SITE])]
        sources = self._context.data_sources
        source = sources.add_spark(engine) if engine == "spark" else sources.add_pandas(engine)
        asset = source.add_dataframe_asset("frame")
        self._batches = asset.add_batch_definition_whole_dataframe("all")

    def expect(
        self,
        name: str,
        frame: DataFrame | pd.DataFrame,
        expectations: Sequence[Expectation],
        identify: Sequence[str] = (),
        sample: int | None = None,
    ) -> list[ExpectationFinding]:
        """Validate a DataFrame with expectations that name their check, see ``as_check``.

        Args:
            name: Unique within the run; the title in Data Docs.
            frame: The rows.
            expectations: What to check.
            identify: Columns that identify failing rows. Without ``sample`` the driver receives all failing rows.
            sample: Maximum failing rows per expectation.

        Raises:
            UnavailableError: An executor was lost, or the store denied it the rows. Run the checks again.
        """
        suite = self._context.suites.add(gx.ExpectationSuite(name, expectations=list(expectations)))
        definition = self._context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=self._batches, suite=suite)
        )
        result_format: dict[str, Any] = {"result_format": "SUMMARY"}
        if identify:
            result_format = {"result_format": "COMPLETE", "unexpected_index_column_names": list(identify)}
        if identify and sample is not None:
            result_format |= {"result_format": "SUMMARY", "partial_unexpected_count": sample}
        checkpoint = self._context.checkpoints.add(
            gx.Checkpoint(
                name=name, validation_definitions=[definition], actions=self._actions, result_format=result_format
            )
        )
        outcome = checkpoint.run(batch_parameters={"dataframe": frame})
        return [_finding(each) for run in outcome.run_results.values() for each in run.results]


def as_check(check: Check) -> dict[str, str]:
    """Return the metadata that ties an expectation to a check."""
    return {"check": check.value}


def load_suite(path: str) -> tuple[str, list[Expectation]]:
    """Read a user's suite; return its name and its expectations.

    A suite executes code, in both forms: conditions and queries of expectations are evaluated by Spark or pandas.

    Args:
        path: A ``.json`` file in Great Expectations' own form, or a ``.py`` file that sets ``suite`` to an
            ``ExpectationSuite``. Python files are executed.

    Raises:
        InvalidRequestError: The file has no suite, or the name of the suite cannot be part of a file's name.
    """
    file = Path(path)
    try:
        suite = _executed(file) if file.suffix == ".py" else _parsed(file)
        name, expectations = str(suite.name), list(suite.expectations)
    except Exception as error:  # the file may do anything, also fail in any way
        raise InvalidRequestError(
            "the file has no expectation suite",
            remedy="pass a .json suite of Great Expectations, or a .py file that sets `suite`",
            path=path,
            problem=f"{type(error).__name__}: {error}",
        ) from error
    if not _NAME.fullmatch(name):
        raise InvalidRequestError(
            "the name of a suite is part of file names: up to 100 characters, without slashes and control characters",
            remedy="rename the suite in the file",
            path=path,
            name=name[:_LONGEST_SHOWN],
        )
    for expectation in expectations:
        expectation.meta = {**(expectation.meta or {}), **as_check(Check.USER_SUITE)}
    return name, expectations


def _executed(file: Path) -> Any:  # noqa: ANN401 - whatever the file sets
    """Return what a Python file sets as its suite; what runs is the text that people read, no archive or bytecode."""
    names = {"__name__": file.stem, "__file__": str(file)}
    exec(compile(_text(file), str(file), "exec"), names)  # noqa: S102 - the operator's own file, see registry.admit
    return names["suite"]


def _parsed(file: Path) -> gx.ExpectationSuite:
    document = json.loads(_text(file))
    suite = gx.ExpectationSuite(name=document["name"], expectations=document["expectations"])
    understood = len(suite.expectations)
    if understood != len(document["expectations"]):
        # Great Expectations leaves out what it does not understand, and then the rest is met.
        raise ValueError(f"only {understood} of {len(document['expectations'])} expectations are understood")
    return suite


def _text(file: Path) -> str:
    if not file.is_file():
        raise ValueError("it is not a file")  # nor is a pipe, which would be waited for
    return file.read_text(encoding="utf-8")


def _site(directory: Path) -> Any:  # noqa: ANN401 - one of several unexported forms
    return {
        "class_name": "SiteBuilder",
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder"},
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(directory.resolve())},
    }


def _finding(result: Any) -> ExpectationFinding:  # noqa: ANN401 - its fields depend on the expectation
    config = result.expectation_config
    found = result.result
    rows = tuple(found.get("unexpected_index_list") or found.get("partial_unexpected_index_list") or ())
    count = int(result.result.get("unexpected_count") or 0)
    return ExpectationFinding(Check(config.meta["check"]), bool(result.success), rows, _evidence(result, config), count)


def _evidence(result: Any, config: Any) -> str:  # noqa: ANN401
    found = result.result
    problem = _problem(result.exception_info or {})
    if unread := _UNREAD.search(problem):
        raise UnavailableError(
            "the rows could not be read to check them",
            remedy="mend what the cause names, and run the checks again",
            expectation=config.type,
            cause=unread[0][:_LONGEST_CAUSE],
        )
    if problem:
        return f"{config.type}: {problem}"
    if result.success:
        return f"{config.type}: met"
    if "unexpected_count" in found:
        sample = (found.get("partial_unexpected_list") or [])[:_SHOWN]
        return f"{config.type}: {found['unexpected_count']} of {found.get('element_count')}, for example {sample}"
    return f"{config.type}: observed {found.get('observed_value')}"


def _problem(info: Mapping[str, Any]) -> str:
    """Return the first exception, in either of the two forms in which Great Expectations reports it."""
    for each in (info, *info.values()):
        if isinstance(each, Mapping) and each.get("raised_exception"):
            return str(each.get("exception_message"))
    return ""
