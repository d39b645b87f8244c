"""The write side: one region's writer, and the table writer that routes rows to regions."""
