"""Asks a table for rows by the filters on its input, in each way in which filters reach Lance, and prints the answers.

In a thread with a small stack, because callers have such threads; a filter that is too deep ends the process.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable

from memwal_core.errors import InvalidRequestError
from memwal_core.reader.scan.scan import ScanRequest
from memwal_core.spark.options import ReadOptions
from memwal_core.spark.reading.pinned import pin_table
from memwal_core.table import Table
from memwal_core.writer.table_writer import TableWriter
from testkit.tables.people import people

STACK_BYTES = 512 * 1024


def _answer(ask: Callable[[str], int | None], condition: str) -> int | str | None:
    try:
        return ask(condition)
    except InvalidRequestError as error:
        return error.what


def main(uri: str, filters: dict[str, str]) -> None:
    table = Table.open(uri)
    with TableWriter.open(table.opened.base) as writer:
        writer.put(people(6, 7))

        def matching(condition: str) -> int:
            return sum(each.search.matching(condition).num_rows for each in writer.writers.values())

        def count(condition: str) -> int:
            return table.count(condition)

        ways: dict[str, Callable[[str], int | None]] = {
            "scan": lambda condition: table.to_arrow(ScanRequest(filter_sql=condition)).num_rows,
            "count": count,
            "explain": lambda condition: len(table.scan(ScanRequest(filter_sql=condition)).explain()) and None,
            "matching": matching,
            "spark": lambda condition: (
                len(pin_table(table.opened.base, ReadOptions.parse({"path": uri, "filter": condition})).fragments)
                and None
            ),
        }
        for name, condition in filters.items():
            found = {way: _answer(ask, condition) for way, ask in ways.items()}
            print(json.dumps([name, found]), flush=True)


if __name__ == "__main__":
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=main, args=(sys.argv[1], json.load(sys.stdin)))
    thread.start()
    thread.join()
