"""Rows of text in columns: how every result that has a table prints it (DESIGN: every result has a readable str)."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """One line a row, each column as wide as its widest cell.

    >>> aligned([("layer", "kept"), ("conv1.weight", "12")])
    ['layer         kept', 'conv1.weight  12']

    Args:
        rows: cells of text, equally many in each row; often the first is the heading.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
