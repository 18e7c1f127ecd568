"""The papers' figures and tables as programs, each with its claims decided."""
