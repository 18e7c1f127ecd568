"""Training, as much of it as the papers' experiments need: one loop, its checkpoints, many small networks at once."""
