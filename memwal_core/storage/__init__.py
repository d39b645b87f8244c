"""Object stores behind one protocol. Owns no state; translates the errors of stores.

The package that owns an object's format decides who writes it.
"""

from memwal_core.storage.opening import open_store
from memwal_core.storage.protocol import ObjectInfo, ObjectStore, StoreKind

__all__ = ["ObjectInfo", "ObjectStore", "StoreKind", "open_store"]
