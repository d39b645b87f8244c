"""Full-text search over the newest versions, ranked as one index."""
