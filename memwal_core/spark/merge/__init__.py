"""What a merge does on executors: reading winners, writing them, searching the base table."""
