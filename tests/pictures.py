"""What tests of pictures share."""

from typing import Any

from matplotlib.figure import Figure

from epoch0 import plots
from epoch0.papers.reproduce import decided
from epoch0.papers.sweep import Artifact

ROOM = 0.02
"""Inches by which a box may stick out: letters do not fill their boxes."""


def whole_picture(artifact: Artifact, setting: Any, results: Any, preset: str = "quick") -> Figure:
    """An artifact's picture as a user gets it, of which nothing is cut off at the edge."""
    picture = decided(artifact, preset, setting, results).figure
    assert len(plots.png(picture, 50)) > 2000  # lays the panels out too
    box, (width, height) = picture.get_tightbbox(), picture.get_size_inches()
    out = {"left": -box.x0, "below": -box.y0, "right": box.x1 - width, "above": box.y1 - height}
    cut = {side: round(float(inches), 2) for side, inches in out.items() if inches > ROOM}
    assert not cut, f"{artifact.id}, {preset}: cut off by so many inches: {cut}"
    return picture
