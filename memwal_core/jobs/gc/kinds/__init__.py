"""One module per kind of garbage: plan purely, then collect."""
