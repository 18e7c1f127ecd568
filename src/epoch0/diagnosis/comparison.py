"""Two checkups of one model side by side: before and after its weights were changed (Hayou section 2.2)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epoch0.diagnosis import report
from epoch0.diagnosis.wording import number, times
from epoch0.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

WHOLE = (
    "verdict", "outcome", "trains", "phase", "chi", "chi_low", "chi_high", "backward", "forward", "trainable_depth",
    "input_gradient",
)  # fmt: skip
"""What is compared of the whole depth."""

BY_LAYER = (
    "forward_gain", "forward_error", "backward_gain", "backward_error", "predicted", "agreement", "norm_out", "tangent",
    "gradient", "unlikeness", "dead_units", "saturated", "status",
)  # fmt: skip
"""What is compared of each layer."""


@dataclass(frozen=True)
class Comparison:
    """What a change did to a network.

    >>> found = checkup(net, x).compare(checkup(mended, x))                    # x of shape (examples, ...)
    >>> found.to_dict()["before"]["outcome"], found.to_dict()["after"]["outcome"]
    ('vanishing', 'trains')

    Attributes:
        before: ``Checkup.to_dict()`` of the model as it was.
        after: the same of the changed one.
        changes: what was changed, one sentence each.

    Raises:
        InputError: if the two have different layers.
    """

    before: Mapping[str, Any]
    after: Mapping[str, Any]
    changes: tuple[str, ...] = ()

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
        chi = f"{number(before['chi'])} to {number(after['chi'])}"
        return (
            f"{before['outcome']} before, {after['outcome']} after: the mean gain went from {chi}, what gradients are "
            f"multiplied by over the depth from {times(before['backward']['factor'])} to "
            f"{times(after['backward']['factor'])}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON: the whole depth before and after, and each layer before and after."""
        pairs = zip(self.before["layers"], self.after["layers"], strict=True)
        return {
            "model": self.before["model"],
            "subject": self.before["subject"],
            "sentence": self.sentence,
            "before": {key: self.before[key] for key in WHOLE},
            "after": {key: self.after[key] for key in WHOLE},
            "changes": list(self.changes),
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
        lines = [f"before: {self.before['verdict']}", f"after:  {self.after['verdict']}", *self.changes]
        for index, (one, other) in enumerate(zip(self.before["layers"], self.after["layers"], strict=True), start=1):
            gains = f"{number(one['forward_gain'])} -> {number(other['forward_gain'])}"
            norms = f"{number(one['norm_out'])} -> {number(other['norm_out'])}"
            status = f"{one['status']} -> {other['status']}"
            lines.append(f"{index:>3} {one['name']:<24} chi {gains}  norm {norms}  {status}")
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
        return report.write(report.page(self.before, self.after, self.changes), path)
