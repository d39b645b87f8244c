"""Region manifests: the state of each region, its invariants and its versions."""
