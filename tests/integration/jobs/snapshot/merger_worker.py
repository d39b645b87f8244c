"""A process that merges one generation after another into one region's progress."""

from __future__ import annotations

import sys

from memwal_core.base_table import BaseTable
from memwal_core.ids import parse_region_id
from testkit.tables.foreign_merges import merge_natively
from testkit.tables.people import people

if __name__ == "__main__":
    table = BaseTable.open(sys.argv[1])
    region_id = parse_region_id(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    for generation in range(1, int(sys.argv[3]) + 1):
        merge_natively(table, people(1000 + generation), {region_id: generation})
        print(generation, flush=True)
