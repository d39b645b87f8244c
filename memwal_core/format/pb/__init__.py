"""Generated protobuf code (``make proto``); imported by the ``codec`` modules only."""
