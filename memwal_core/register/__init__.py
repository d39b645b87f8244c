"""The versioned register: numbered immutable versions, put-if-absent, hint, probe forward.

The one compare-and-swap primitive; it knows nothing of regions. Owns no state of its own: region
manifests, leases and ledgers each keep a register in a directory of theirs. May import storage.
"""

from memwal_core.register.versioned import FIRST_VERSION, Entry, VersionedRegister

__all__ = ["FIRST_VERSION", "Entry", "VersionedRegister"]
