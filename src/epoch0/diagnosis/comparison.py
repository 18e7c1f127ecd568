"""Two checkups of one model side by side: before and after its weights were changed (Hayou section 2.2)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0.diagnosis import report
from epoch0.diagnosis.plane_view import PlaneView, same_square
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import chance, number, regions_line, times
from epoch0.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

WHOLE = (
    "verdict", "outcome", "trains", "recipes", "blame", "phase", "chi", "chi_low", "chi_high", "backward", "forward",
    "input_gradient", "regions", "regions_reason", "pruning_forecast", "noise_sensitivity",
)  # fmt: skip
"""What is compared of the whole depth."""

BY_LAYER = (
    "forward_gain", "forward_error", "backward_gain", "backward_error", "predicted", "agreement", "norm_out", "tangent",
    "gradient", "update", "dissimilarity", "dead_units", "saturated", "status",
)  # fmt: skip
"""What is compared of each layer."""


@dataclass(frozen=True)
class Comparison:
    """What a change did to a network.

    >>> laws = epoch0.Gaussian(0.5), epoch0.Gaussian(2**0.5)
    >>> net, mended = (epoch0.networks.mlp([*[64] * 13, 10], weights=law, seed=0) for law in laws)
    >>> before, after = (checkup(one, x, y, trial=False) for one in (net, mended))     # x of shape (100, 64)
    >>> found = before.compare(after)
    >>> found.to_dict()["before"]["outcome"], found.to_dict()["after"]["outcome"]
    ('vanishing', 'trains')

    Attributes:
        before: ``Checkup.to_dict()`` of the model as it was.
        after: the same of the changed one.
        changes: what was changed, one sentence each.
        planes: the linear regions on a plane before and after, for the page; None where there are none.

    Raises:
        InputError: if the two have different layers.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    changes: tuple[str, ...] = ()
    planes: tuple[PlaneView | None, PlaneView | None] = field(default=(None, None), repr=False, compare=False)

    def __post_init__(self) -> None:
        one, other = ([layer["name"] for layer in each["layers"]] for each in (self.before, self.after))
        if one != other:
            only = [name for name in (*one, *other) if (name in one) != (name in other)]
            raise InputError(
                f"the two checkups are not of one model: {len(one)} layers before and {len(other)} after"
                + (f", {only[0]!r} is in one of them only." if only else ", in another order.")
            )

    @property
    def sentence(self) -> str:
        """What the change did, in one sentence."""
        before, after = self.before, self.after
        recipes = ((NAMES[name], before["recipes"][name], recipe) for name, recipe in after["recipes"].items())
        chances = " and ".join(
            f"from {chance(one['probability'])} to {chance(other['probability'])} with {name}"
            for name, one, other in recipes
        )
        norms = "; gradients ".join(
            f"{times(before[way]['factor'])} before, {times(after[way]['factor'])} after"
            for way in ("forward", "backward")
        )
        return (
            f"{before['outcome']} before, {after['outcome']} after: the chance of training went {chances}. "
            f"Over the depth carried tangents {norms}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the whole depth before and after, and each layer before and after.

        ``same_square`` holds the activation regions in one square before and after, and its side as a share of that of
        the square around the examples; None where the two were not looked at around the same examples.
        """
        pairs = zip(self.before["layers"], self.after["layers"], strict=True)
        return {
            "model": self.before["model"],
            "subject": self.before["subject"],
            "sentence": self.sentence,
            "before": {key: self.before[key] for key in WHOLE},
            "after": {key: self.after[key] for key in WHOLE},
            "changes": list(self.changes),
            "same_square": self._counts(),
            "layers": [
                {
                    "name": one["name"],
                    "kind": one["kind"],
                    "before": {key: one[key] for key in BY_LAYER},
                    "after": {key: other[key] for key in BY_LAYER},
                }
                for one, other in pairs
            ],
        }

    def __str__(self) -> str:
        lines = [f"before: {self.before['verdict']}", f"after:  {self.after['verdict']}", self.sentence, *self.changes]
        pairs = (("before:", self.before), ("after:", self.after))
        lines += [f"{word:<7} {regions_line(one)}" for word, one in pairs if one["regions"] is not None]
        for found in ("pruning_forecast", "noise_sensitivity"):
            lines += [f"{word:<7} {one[found]['sentence']}" for word, one in pairs if one[found] is not None]
        for index, (one, other) in enumerate(zip(self.before["layers"], self.after["layers"], strict=True), start=1):
            keys = {"tangent": "tangent", "gradient": "gradient", "chi": "forward_gain"}
            said = (f"{word} {number(one[key])} -> {number(other[key])}" for word, key in keys.items())
            lines.append(f"{index:>3} {one['name']:<24} {'  '.join(said)}  {one['status']} -> {other['status']}")
        return "\n".join(lines)

    def renderable(self, width: int) -> "RenderableType":
        """Both for a terminal of so many columns."""
        from epoch0.diagnosis.terminal import side_by_side

        return side_by_side(self.to_dict(), width)

    def print(self, width: int | None = None) -> None:
        """Show both in the terminal.

        Args:
            width: columns to use instead of the terminal's.
        """
        from rich.console import Console

        console = Console(width=width, highlight=False)
        console.print(self.renderable(console.width))

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write both as one self-contained HTML page.

        Raises:
            InputError: if the file cannot be written.
        """
        shown = self.planes if (same := self._same()) is None else same
        planes = [report.Plane(plane.png(), plane.count, plane.share) if plane else None for plane in shown]
        return report.write(report.page(self.before, self.after, self.changes, planes=planes), path)

    def _same(self) -> tuple[PlaneView, PlaneView] | None:
        """One square before and after, where both are around the same examples: what differs is then the network's."""
        before, after = self.planes
        return None if before is None or after is None else same_square(before, after)

    def _counts(self) -> dict[str, Any] | None:
        """How many regions there are in that square."""
        if (same := self._same()) is None:
            return None
        return {"share": same[0].share, "before": same[0].count, "after": same[1].count}
