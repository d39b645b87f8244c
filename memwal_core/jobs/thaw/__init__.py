"""Freezing a table by hand, and ending a freeze with a person's choice.

Not a job of the catalog: those have DAGs and obey a freeze (decision 0025). ``plan`` decides what a choice does (pure),
``run`` does it.
"""
