"""One clear error for bad input: it repeats what was passed and says what would work."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST = 1500  # characters of a message; what is longer loses its middle


class InputError(ValueError):
    """Something the caller passed cannot be used; the message says what it was and what would work.

    The command line prints it as one line and leaves with exit code 2; a library user catches it as a ``ValueError``.
    """

    def __str__(self) -> str:
        text = " ".join(super().__str__().split("\n"))  # arrays that it repeats take several lines
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 500]} ... {text[-400:]}"


def suggest(name: str, known: Iterable[str]) -> str:
    """The closest known name, as the end of an error message.

    >>> suggest("rleu", ["relu", "tanh"])
    " Did you mean 'relu'?"
    >>> suggest("qqq", ["relu", "tanh"])
    ''
    """
    spelled = {item.lower(): item for item in known}
    close = difflib.get_close_matches(str(name).lower(), spelled, n=1, cutoff=0.5)
    return f" Did you mean '{spelled[close[0]]}'?" if close else ""


def check_dense(name: str, tensor: Any) -> None:
    """Refuse a tensor of torch that holds no values, or not in the plain way."""
    try:
        layout, kind = str(tensor.layout).removeprefix("torch."), tensor.device.type
        odd = {f"on the {kind} device": kind == "meta", layout: layout != "strided", "quantized": tensor.is_quantized}
        why = next((word for word, holds in {"nested": tensor.is_nested, **odd}.items() if holds), "")
        plain = type(tensor).__name__ in ("Tensor", "Parameter") and tensor.dtype.itemsize > 1
        if not why and kind == "cpu" and not (plain and tensor.untyped_storage().nbytes()):  # elsewhere it waits
            tensor.detach().reshape(-1)[:1].isfinite().tolist()
    except Exception as problem:
        why = f"a {type(tensor).__name__} whose values cannot be read ({first_line(problem)[:200]})"
    if why:
        wanted = "a plain tensor that holds values, such as that of to_dense or dequantize"
        wanted = "what lies in memory; checkup takes such a model with stream=True" if "meta" in why else wanted
        raise InputError(f"{name} is {why}: give {wanted}.")


def check_finite(name: str, values: Any) -> None:
    """Refuse NaN and infinity in a tensor or array of any shape, saying how many there are and where the first is."""
    import numpy as np  # here, so that the command line's help does not wait for it

    if hasattr(values, "isfinite"):  # a torch tensor, tested where it lives and in its own dtype
        check_dense(name, values)
        finite = values.detach().isfinite()
        if bool(finite.all()):
            return
        finite, nan = finite.cpu().numpy(), bool(values.isnan().any())
    else:
        values = np.asarray(values, dtype=np.float64)
        finite, nan = np.isfinite(values), bool(np.isnan(values).any())
    if len(bad := np.argwhere(~np.atleast_1d(finite))):
        counted = f"{len(bad)} of its {finite.size} values are not finite, the first at index {tuple(bad[0].tolist())}"
        raise InputError(f"{name} holds {'NaN' if nan else 'infinity'}: {counted}.")


@contextmanager
def reworded(explain: Callable[[Exception], Exception], kept: type[Exception] = InputError) -> Iterator[None]:
    """Turn an error of code that is not ours into what ``explain`` makes of it; ours, and one that is kept, stay."""
    try:
        yield
    except (InputError, kept):
        raise
    except Exception as error:
        raise explain(error) from error


def first_line(problem: BaseException) -> str:
    """The first line of an error's message, or its type where it has none.

    >>> first_line(AssertionError())
    'AssertionError'
    """
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]
