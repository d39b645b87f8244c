"""Which keys a flushed MemTable may hold, answered without opening it.

Owns the bytes of key filters, ours and pylance's. Pure functions over Arrow columns; may import the byte form of region
values and errors.
"""

from memwal_core.key_filter.filter import KEY_FILTER_NAME, KeyFilter, hashes_of
from memwal_core.key_filter.growing import GrowingKeyFilter
from memwal_core.key_filter.pylance import PYLANCE_FILTER_NAME, pylance_filter

__all__ = ["KEY_FILTER_NAME", "PYLANCE_FILTER_NAME", "GrowingKeyFilter", "KeyFilter", "hashes_of", "pylance_filter"]
