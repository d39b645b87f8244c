"""Which regions a merge takes, why, how it commits, and what stands in its way. Pure but for ``due``."""
