"""`memwal watch`: a long-lived process that judges every registered table and offers what it found to Prometheus."""
