"""Work in shares: where a job does what grows with the table, and how executors do it."""
