"""The content of the MemWAL index: details and region snapshots, as values."""
