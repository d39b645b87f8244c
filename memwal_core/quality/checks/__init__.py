"""What the checks compute, one module per question."""
