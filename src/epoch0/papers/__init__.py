"""The papers' figures and tables as things that run, each with its claims decided."""
