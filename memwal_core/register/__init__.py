"""The versioned register: numbered immutable versions, put-if-absent, hint, probe forward.

The one compare-and-swap primitive; it knows nothing of regions. Region manifests, leases and
ledgers each keep a register in a directory of their own.
"""

from memwal_core.register.versioned import FIRST_VERSION, Entry, VersionedRegister, hint_bytes

__all__ = ["FIRST_VERSION", "Entry", "VersionedRegister", "hint_bytes"]
