"""The common style: told apart without colour, no trace in the caller's matplotlib, the same bytes every time."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from epoch0 import plots


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2, in [0, 1]."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_the_first_colours_stand_out_on_white_and_markers_differ() -> None:
    assert len(set(plots.COLOURS)) == len(plots.COLOURS) == len(plots.MARKERS) == len(set(plots.MARKERS))
    # WCAG asks a contrast of 3 for graphics; Okabe and Ito's own orange and sky blue are below it, so they come late
    assert all(1.05 / (luminance(colour) + 0.05) > 2.9 for colour in plots.COLOURS[:4])


def test_the_callers_settings_come_back() -> None:
    before = dict(matplotlib.rcParams)
    with pytest.raises(RuntimeError), plots.style():
        assert matplotlib.rcParams["axes.grid"]
        raise RuntimeError
    plots.png(plots.figure()[0])
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_loaded() -> None:
    code = (
        "import sys; from epoch0 import plots; assert 'matplotlib' not in sys.modules\n"
        "picture, axes = plots.figure(); plots.points(axes, [1], [1], [0.1], 0, 'a')\n"
        "plots.heading(picture, 'a', 'b')\n"
        "plots.png(picture); assert 'matplotlib.pyplot' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_panels() -> None:
    assert plots.figure(rows=2, columns=3)[1].shape == (2, 3)
    picture, panels = plots.figure(mosaic=[["a", "b"], ["a", "."]])
    assert set(panels) == {"a", "b"} and len(picture.axes) == 2


def test_error_bars_are_two_standard_errors() -> None:
    _, axes = plots.figure()
    plots.points(axes, [1.0, 2.0], [3.0, 4.0], [0.5, 0.25], 1, "law")
    (container,) = axes.containers
    (bars,) = container.lines[2]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[2.0, 4.0], [3.5, 4.5]]
    assert container.lines[0].get_marker() == plots.MARKERS[1] and container.get_label() == "law"


def test_a_curve_lies_under_the_points_and_is_named_only_on_request() -> None:
    _, axes = plots.figure()
    plots.curve(axes, [0.0, 1.0], [1.0, 2.0], 0)
    plots.curve(axes, [0.0, 1.0], [1.0, 2.0], 1, "theory", linestyle="--")
    assert axes.get_legend_handles_labels()[1] == ["theory"]
    assert axes.lines[0].get_zorder() < 2 and axes.lines[1].get_linestyle() == "--"


def test_a_long_heading_stays_inside_the_picture() -> None:
    picture, axes = plots.figure(4.0, 3.0)
    axes.plot([1, 2])
    plots.heading(picture, "A title", "one setting after another, " * 8)
    plots.png(picture)
    box = picture._suptitle.get_window_extent()
    assert box.x1 <= picture.bbox.x1 and box.y1 <= picture.bbox.y1
    assert box.y0 >= axes.get_window_extent().y1


@pytest.mark.parametrize(
    ("width", "most", "columns"), [(12.0, 6, 6), (8.0, 6, 5), (8.0, 2, 2), (3.5, 6, 2), (1.2, 6, 1)]
)
def test_a_legend_has_as_many_columns_as_there_is_room_for(width: float, most: int, columns: int) -> None:
    with plots.style():
        picture, axes = plots.figure(width, 3.0)
        for i in range(6):
            axes.plot([0, 1], [i, 1], label=f"some method {i}")
        plots.legend_below(picture, columns=most)
        picture.canvas.draw()
    (legend,) = picture.legends
    assert len({round(text.get_window_extent().x0) for text in legend.get_texts()}) == columns
    inside = legend.get_window_extent()
    assert width == 1.2 or (inside.x0 >= 0 and inside.x1 <= picture.bbox.x1), "no wider than the picture"


def test_the_same_picture_has_the_same_bytes() -> None:
    def drawn() -> bytes:
        picture, axes = plots.figure()
        axes.plot([1, 2, 3])
        return plots.png(picture)

    assert drawn() == drawn()
