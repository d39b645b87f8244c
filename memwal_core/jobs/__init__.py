"""Background jobs: each is a pure plan and a run."""
