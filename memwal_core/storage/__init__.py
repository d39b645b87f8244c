"""Object stores behind one protocol. Owns no state; translates the errors of stores.

May import only the top-level modules. Everybody above may use it; who writes which object is
decided by the package that owns the object's format.
"""

from memwal_core.storage.opening import open_store
from memwal_core.storage.protocol import ObjectInfo, ObjectStore, StoreKind

__all__ = ["ObjectInfo", "ObjectStore", "StoreKind", "open_store"]
