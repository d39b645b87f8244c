"""Settings: values only, read once by an entry point and passed down, never at import.

Sources, later wins: defaults, environment (``MEMWAL_`` prefix, ``__`` between levels, for
example ``MEMWAL_MERGE__MAX_BYTES``), arguments of the caller. Unknown names are refused.
"""

from memwal_core.settings.dispatch import DispatchSettings
from memwal_core.settings.executors import ExecutorSettings
from memwal_core.settings.fleet import FleetSettings
from memwal_core.settings.flushing import FlushSettings
from memwal_core.settings.model import (
    ENVIRONMENT_PREFIX,
    CatchupSettings,
    DoctorSettings,
    IndexSettings,
    IngestSettings,
    LeaseSettings,
    LedgerSettings,
    MergeSettings,
    MergeTriggerSettings,
    QualitySettings,
    Settings,
    StorageSettings,
    load_settings,
)
from memwal_core.settings.page import PageSettings
from memwal_core.settings.reading import ReadSettings
from memwal_core.settings.retention import DAY_S, CompactSettings, GcSettings, RetentionSettings, WalCollection
from memwal_core.settings.status import StatusSettings
from memwal_core.settings.writer import LONGEST_EPOCH_CHECK_S, MIB, WriterSettings

__all__ = [
    "DAY_S",
    "ENVIRONMENT_PREFIX",
    "LONGEST_EPOCH_CHECK_S",
    "MIB",
    "CatchupSettings",
    "CompactSettings",
    "DispatchSettings",
    "DoctorSettings",
    "ExecutorSettings",
    "FleetSettings",
    "FlushSettings",
    "GcSettings",
    "IndexSettings",
    "IngestSettings",
    "LeaseSettings",
    "LedgerSettings",
    "MergeSettings",
    "MergeTriggerSettings",
    "PageSettings",
    "QualitySettings",
    "ReadSettings",
    "RetentionSettings",
    "Settings",
    "StatusSettings",
    "StorageSettings",
    "WalCollection",
    "WriterSettings",
    "load_settings",
]
