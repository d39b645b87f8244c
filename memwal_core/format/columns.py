"""Names of columns that are not a table's own, and what the address of a row consists of."""

from __future__ import annotations

import numpy as np

ROW_ID = "_rowid"
"""What Lance's masks consist of: row addresses, or stable row ids in tables that have them."""
ROW_ADDRESS = "_rowaddr"
ROW_OFFSET = "_rowoffset"
CREATED_AT = "_row_created_at_version"
UPDATED_AT = "_row_last_updated_at_version"
"""The version that last wrote a row. Lance keeps it on tables with stable row ids; on others the column says 1."""
DISTANCE_COLUMN = "_distance"
SCORE_COLUMN = "_score"
TOMBSTONE_COLUMN = "_tombstone"
"""Boolean, never NULL; true on a row that deletes its key (decision 0007)."""

ROW_NUMBER_BITS = np.uint64(32)
"""An address is the fragment's id above so many bits, and the row's number in it below."""
ROW_NUMBER_MASK = np.uint64((1 << 32) - 1)
