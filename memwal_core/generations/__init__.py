"""Reading flushed MemTables as rows of the base table: their columns by field id, their keys first.

Owns nothing: flushed MemTables never change once a region manifest records them. What merges and
readers share. May import the base table, the MemTable schema and what lies below.
"""

from memwal_core.generations.columns import ColumnMapping, LanceField, MergeTarget, SchemaMismatch, map_columns
from memwal_core.generations.keyed import KeyedGeneration, read_keys, read_whole
from memwal_core.generations.opening import open_generation
from memwal_core.generations.row_filter import kept_rows

__all__ = [
    "ColumnMapping",
    "KeyedGeneration",
    "LanceField",
    "MergeTarget",
    "SchemaMismatch",
    "kept_rows",
    "map_columns",
    "open_generation",
    "read_keys",
    "read_whole",
]
