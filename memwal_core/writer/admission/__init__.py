"""What is let in: batches that fit, within the bounds of memory."""
