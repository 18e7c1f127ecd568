"""How a model is called, the record of one run, and what its operations mean: the base of all packages above."""
