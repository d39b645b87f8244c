"""What state a table is in, what is wrong with it, and why a job did or did not act. Reads only."""
