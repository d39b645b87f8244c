"""Tables of LanceDB's open-source client, by the table object that the client returns.

The client need not be installed: what it returns is used, not what it defines. May import opening and what lies below.
"""

from memwal_core.lancedb.maintained import ClientTable, MaintainedTable, maintained

__all__ = ["ClientTable", "MaintainedTable", "maintained"]
