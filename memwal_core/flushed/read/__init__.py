"""Reading flushed MemTables as rows of the base table: columns by field id, keys first.

Owns nothing: a flushed MemTable never changes once a region manifest records it. Merges and readers share this package.
May import the base table, the MemTable schema and what lies below.
"""

from memwal_core.flushed.read.columns import ColumnMapping, MergeTarget, SchemaMismatch, map_columns
from memwal_core.flushed.read.contents import check_contents
from memwal_core.flushed.read.keyed import KeyedGeneration, numbered, read_keys, read_whole
from memwal_core.flushed.read.opening import open_generation
from memwal_core.flushed.read.own_keys import OwnKeys
from memwal_core.flushed.read.row_filter import kept_rows

__all__ = [
    "ColumnMapping",
    "KeyedGeneration",
    "MergeTarget",
    "OwnKeys",
    "SchemaMismatch",
    "check_contents",
    "kept_rows",
    "map_columns",
    "numbered",
    "open_generation",
    "read_keys",
    "read_whole",
]
