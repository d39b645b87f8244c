"""Using native libraries so that nothing they do ends the process or passes as something else."""
