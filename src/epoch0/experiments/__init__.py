"""Experiments: trials of a frozen spec and a seed, the engine that runs them, the file that keeps them, claims."""
