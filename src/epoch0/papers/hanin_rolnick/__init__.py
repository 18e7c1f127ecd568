"""Hanin & Rolnick, "Complexity of linear regions in deep networks": its figures, and Theorem 3 against exact counts."""
