"""How a model is called, the record of one run, and what its operations mean: what all rooms above read."""
