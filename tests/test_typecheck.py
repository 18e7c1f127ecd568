"""The checker of the test run notices what is wrong, in functions, dataclasses and the package."""

import os
from dataclasses import dataclass

import pytest

from epoch0.seeds import _sequence
from typecheck import checker


def test_wrong_arguments_and_results_are_noticed() -> None:
    def scaled(x: float, text: "NowhereToBeFound" = "", more: list["Nowhere"] | None = None) -> "int | str":  # noqa: F821
        return text or x

    scaled = checker(scaled)
    assert scaled(3) == 3 and scaled(1.0, "a") == "a"
    for wrong in (("3",), (1.5,)):
        with pytest.raises(TypeError):
            scaled(*wrong)


def test_fields_are_noticed() -> None:
    @checker
    @dataclass(frozen=True)
    class Spec:
        width: int

    assert Spec(3).width == 3
    with pytest.raises(TypeError):
        Spec("3")


@pytest.mark.skipif(not os.environ.get("EPOCH0_TYPES"), reason="types are not checked in this run")
def test_the_package_is_checked() -> None:
    with pytest.raises(TypeError):
        _sequence("seed", ())
