"""What a read did: nodes that ran, with counts and times, and the requests they made."""
