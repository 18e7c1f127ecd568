"""Numbers, errors, changes and status words as people read them, the same on the page and in the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

LOOKS = {
    ("✓", "good"): ("trains", "keeps", "holds", "survives"),
    ("✓", "mild"): ("needs adam", "needs sgd", "holds on the whole"),
    ("✕", "bad"): ("overflows", "dead", "fails", "dies", "overflow", "no gradient", "size", "rough", "slow", "fault"),
    ("?", "mild"): ("unclear", "undecided", "at risk", "not judged"),
    ("↓", "mild"): ("shrinks",),
    ("↓", "bad"): ("vanishing",),
    ("↑", "mild"): ("grows",),
    ("↑", "bad"): ("exploding",),
    ("≡", "bad"): ("collapsed", "blind"),
    ("⊣", "mild"): ("saturated",),
}
"""Sign and tone to status words. The word is always shown: sign and colour repeat it and never replace it."""

SIGNS = {word: sign for (sign, _), words in LOOKS.items() for word in words}
TONES = {word: tone for (_, tone), words in LOOKS.items() for word in words}


def number(value: float | None, digits: int = 3) -> str:
    """A number for readers: rounded to significant digits, powers of ten written out, a dash for none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")  # the power of the rounded number: 0.9996 is 1.00
    if -4 < int(power) < 4:
        return f"{value:.{max(digits - 1 - int(power), 0)}f}"
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}×10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def times(value: float | None) -> str:
    """A factor as growth or shrinkage: "× 3.20", "÷ 49.9"."""
    if value is None:
        return "–"
    return f"× {number(value)}" if value >= 0.995 else f"÷ {number(1 / value)}" if value else "÷ ∞"


def shape(sizes: Sequence[int] | None) -> str:
    """Sizes without the examples: "3×32×32", "1" for one number."""
    return "–" if sizes is None else "×".join(str(size) for size in sizes) or "1"


def tone(word: str, trains: bool = True) -> str:
    """The tone of a status: some are a fault in a network that does not train and a remark in one that does."""
    return "bad" if not trains and word in ("shrinks", "grows", "saturated") else TONES.get(word, "mild")


def chance(value: float) -> str:
    """A probability in whole percent, never quite sure."""
    return "< 1 %" if value < 0.005 else "> 99 %" if value > 0.994 else f"{value:.0%}".replace("%", " %")


def rate(value: float | None) -> str:
    """A learning rate in two digits, as it would be typed."""
    return "none" if not value else number(value, 2) if value < 1e-4 else f"{value:.2g}"


def evidence(checkup: Mapping[str, Any], recipe: Mapping[str, Any]) -> str:
    """What a recipe's verdict rests on: "the first step", or "a trial of 150 steps"."""
    yours = recipe["optimizer"] == "yours"
    trial = checkup.get("program" if yours else "trial")
    if recipe["evidence"] != "trial" or not trial:
        return "the first step"
    runs = [] if yours else [run for run in trial["runs"] if run["optimizer"] == recipe["optimizer"]]
    return f"a trial of {max((len(run['losses']) for run in runs), default=trial['steps'])} steps"


def brief(layer: str) -> str:
    """The name of a layer, without saying twice what both ends of it share."""
    first, dots, last = layer.partition(" … ")
    return f"{first}{dots}{within(last, first).lstrip('….')}"


def within(part: str, layer: str) -> str:
    """The path of a part from its layer on, or from the last module on that has both in it."""
    first = layer.partition(" … ")[0]
    if part.startswith(f"{first}."):
        return part.removeprefix(first)
    path, other, shared = part.split("."), first.split("."), 0
    while shared < min(len(path), len(other)) - 1 and path[shared] == other[shared]:
        shared += 1
    return f"…{'.'.join(path[shared:])}" if shared > 1 else part


def update(value: float | None) -> str:
    """The size of a step relative to the weights; those that start at zero have no such size."""
    return "" if value is None else "from 0" if value > 1e9 else number(value, 2)


def with_error(value: float | None, error: float | None) -> str:
    """A number and its standard error, whose first digit is the last one of the number."""
    if value is None or error is None or error < 1e-5 * abs(value):  # nothing was left to chance
        return number(value)
    if not 1e-3 <= abs(value) < 1e4:
        return f"{number(value)} ± {number(error, 1)}"
    first_digit = math.floor(math.log10(float(f"{error:.0e}")))  # of the rounded error: 0.00096 is 0.001
    decimals = min(max(-first_digit, 0), 5)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"
