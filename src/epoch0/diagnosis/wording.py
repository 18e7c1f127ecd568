"""Numbers, errors, changes and status words as people read them, the same on the page and in the terminal."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

TONES = {
    "trains": "good",
    "keeps": "good",
    "overflows": "bad",
    "vanishing": "bad",
    "exploding": "bad",
    "dead": "bad",
    "collapsed": "bad",
    "holds": "good",
    "fails": "bad",
    "survives": "good",
    "dies": "bad",
}
"""Status word to tone; anything else is mild. The word is always shown: colour repeats it and never replaces it."""

SIGNS = {
    "trains": "✓",
    "keeps": "✓",
    "overflows": "✕",
    "unclear": "?",
    "undecided": "?",
    "holds": "✓",
    "shrinks": "↓",
    "vanishing": "↓",
    "grows": "↑",
    "exploding": "↑",
    "dead": "✕",
    "fails": "✕",
    "collapsed": "≡",
    "saturated": "⊣",
    "survives": "✓",
    "at risk": "?",
    "dies": "✕",
}


def number(value: float | None, digits: int = 3) -> str:
    """A number for reading: so many significant digits, powers of ten written out, a dash for none.

    >>> number(0.166667), number(3.2e-9), number(None), number(12345.0)
    ('0.167', '3.2×10⁻⁹', '–', '1.23×10⁴')
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    if -4 < exponent < 4:
        return f"{value:.{max(digits - 1 - exponent, 0)}f}" if exponent < digits else f"{value:.0f}"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}×10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def percent(value: float | None) -> str:
    """A share in percent, as people read it.

    >>> percent(0.1), percent(0.0314), percent(12.3), percent(None)
    ('10 %', '3.1 %', '1230 %', '–')
    """
    if value is None:
        return "–"
    size = 100 * value
    return f"{size:.3g} %" if 10 <= size < 1000 else f"{size:.0f} %" if 1000 <= size < 1e5 else f"{number(size, 2)} %"


def signed(value: float | None) -> str:
    """A number with its sign, a true minus.

    >>> signed(-3.584), signed(0.2)
    ('−3.58', '+0.200')
    """
    if value is None:
        return "−∞"
    return ("−" if value < 0 else "+") + number(abs(value))


def times(value: float | None) -> str:
    """A change of a norm in words.

    >>> times(0.01), times(3.0), times(1.0)
    ('÷ 100', '× 3.00', '× 1.00')
    """
    if value is None:
        return "–"
    if value == 0:
        return "÷ ∞"
    return f"× {number(value)}" if value >= 0.995 else f"÷ {number(1 / value)}"


def shape(sizes: Sequence[int] | None) -> str:
    """The shape of one example.

    >>> shape((16, 8, 8)), shape((10,)), shape(())
    ('16×8×8', '10', '1')
    """
    return "–" if sizes is None else "×".join(str(size) for size in sizes) or "1"


def tone(word: str, trains: bool = True) -> str:
    """The tone of a status: a layer that shrinks or grows is a fault in a network that does not train, else a remark.

    >>> tone("keeps"), tone("grows"), tone("grows", trains=False)
    ('good', 'mild', 'bad')
    """
    return "bad" if not trains and word in ("shrinks", "grows") else TONES.get(word, "mild")


def with_error(value: float | None, error: float | None) -> str:
    """A number and its standard error, whose first digit is the last one of the number.

    >>> with_error(0.17491, 0.00071), with_error(1.0, 0.02), with_error(65.8, 12.0)
    ('0.1749 ± 0.0007', '1.00 ± 0.02', '66 ± 12')
    """
    if value is None or error is None or error < 1e-5 * abs(value):  # nothing was left to chance
        return number(value)
    if not 1e-3 <= abs(value) < 1e4:
        return f"{number(value)} ± {number(error, 1)}"
    first_digit = math.floor(math.log10(float(f"{error:.0e}")))  # of the rounded error: 0.00096 is 0.001
    decimals = min(max(-first_digit, 0), 5)
    return f"{value:.{decimals}f} ± {error:.{decimals}f}"


def regions_line(checkup: Mapping[str, Any]) -> str:
    """Regions on segments and on the plane in a sentence, or why there are none.

    >>> regions_line(found.to_dict())
    'Linear regions: 0.46 ± 0.03 a neuron on 6 segments between examples, 0.50 expected; 512 on a plane through three.'

    Args:
        checkup: ``Checkup.to_dict()``.
    """
    found = checkup.get("regions")
    if found is None:
        return f"Linear regions: none counted ({checkup.get('regions_reason') or 'not asked for'})."
    said = f"Linear regions: {with_error(found['per_neuron'], found['error_per_neuron'])} a neuron on "
    said += f"{found['lines']} segments" if found["lines"] > 1 else "one segment"
    said += " between examples"
    if found["expected"] is not None:
        said += f", {number(found['expected_per_neuron'])} expected"
    if found["plane"] is not None:
        part = "" if found["plane"]["share"] >= 1 else f", {found['plane']['share']:.2g} of its width"
        said += f"; {found['plane']['count']:,} in a square through three{part}"
    return f"{said}."
