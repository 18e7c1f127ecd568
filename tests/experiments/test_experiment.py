"""Trials: keys that never move, specs that come back as they were, outside JSON checked strictly."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epoch0.distributions import Discrete, Gaussian, Sparse, Uniform
from epoch0.errors import InputError
from epoch0.experiments.experiment import DATA_VERSION, Trial, canonical_json, read_canonical, resolve

# Keys of stored results: if one of these changes, every results file in the world is out of date.
PINNED = {
    "plain": ({"width": 784, "std": 0.1, "name": "relu"}, 7),
    "nested": ({"b": [1, 2.5, None, True], "a": {"z": -0.0, "y": "é"}}, 0),
    "law": ({"weights": Sparse(Gaussian(6.0), 0.3), "values": Discrete((-1.0, 0.0, 1.0))}, 2**63 - 1),
}
KEYS = {
    "plain": "e1ab0c28cf71adeeadfe5d1af6393cc3d766119a5ebc976cc729d738f8468117",
    "nested": "69aad97c868d3d6ba03ac212f47d7efbecfaa2ba40c957c6405c489738760d61",
    "law": "3b9a18b7c278db95e51d6d46ac12a7733653a2a9612cd642e774375f119f57cb",
}


@dataclass(frozen=True)
class Shape:
    sizes: tuple[int, ...]
    law: Gaussian
    area: int = field(init=False, default=0)


@dataclass
class Mutable:
    size: int = 1


def trial(spec, seed=0):
    return Trial("trial_functions:draw", spec, seed)


@pytest.mark.parametrize("name", PINNED)
def test_keys_are_pinned(name):
    assert DATA_VERSION == 1
    assert trial(*PINNED[name]).key == KEYS[name]


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
names = st.text().filter(lambda name: name != "$class")
specs = st.dictionaries(
    names, st.recursive(leaves, lambda kids: st.lists(kids, max_size=3) | st.dictionaries(names, kids, max_size=3))
)


def same(one, other):
    """Equal with equal types all the way down, and -0.0 told from 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


@given(specs)
def test_specs_come_back_exactly(spec):
    text = canonical_json(spec)
    assert same(read_canonical(text), spec)
    assert text.isascii() and canonical_json(read_canonical(text)) == text


@given(specs, st.randoms())
def test_the_order_of_names_does_not_matter(spec, random):
    items = list(spec.items())
    random.shuffle(items)
    assert trial(dict(items)).key == trial(spec).key


def test_what_differs_has_another_key():
    different = [
        trial({"a": 1}), trial({"a": 1.0}), trial({"a": True}), trial({"a": "1"}), trial({"a": None}),
        trial({"a": [1]}), trial({"a": 1}, 1), trial({"b": 1}), trial({}), trial({"a": np.nextafter(1.0, 2.0)}),
        trial({"a": 0.0}), trial({"a": -0.0}), Trial("trial_functions:nothing", {"a": 1}, 0),
        trial({"a": Gaussian(1.0)}), trial({"a": Uniform(1.0)}), trial({"a": {"std": 1.0}}),
    ]  # fmt: skip
    assert len({t.key for t in different}) == len(set(different)) == len(different)


def test_what_is_the_same_has_the_same_key():
    assert trial({"a": (1, 2)}) == trial({"a": [1, 2]})
    assert trial({"a": np.float64(0.1), "b": np.int32(3)}, 4) == trial({"a": 0.1, "b": 3}, 4)
    assert trial({"a": np.float32(0.1)}) == trial({"a": float(np.float32(0.1))})


def test_dataclasses_come_back_as_themselves():
    shape = Shape((3, 4), Gaussian(0.1))
    assert trial(shape).spec == shape
    back = trial({"shape": shape, "laws": [Sparse(Discrete((-1.0, 1.0)), 0.5)]}).spec
    assert back == {"shape": shape, "laws": [Sparse(Discrete((-1.0, 1.0)), 0.5)]}


def test_a_trial_is_frozen_with_its_spec():
    spec = {"sizes": [1, 2]}
    first = trial(spec)
    spec["sizes"].append(3)
    assert first.spec == {"sizes": [1, 2]} and first.key == trial({"sizes": [1, 2]}).key
    with pytest.raises(AttributeError):
        first.seed = 3


def test_a_long_trial_is_shown_short():
    shown = str(trial({"long": list(range(1000))}, 3))
    assert shown.startswith("trial_functions:draw seed=3 spec={") and len(shown) < 400 and shown.endswith("999]}")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"a": [1.0, math.nan]}, r"spec\['a'\]\[1\] is nan"),
        ({"a": math.inf}, "finite"),
        ({"a": np.ones(2)}, "tolist"),
        ({"a": print}, "its name"),
        ({"a": Mutable()}, "frozen"),
        ({1: 2}, "names are strings"),
        ({"$class": "x"}, "reserved"),
        ({"a": {1, 2}}, "set"),
        ({"a": Shape((1, math.nan), Gaussian(1.0))}, r"spec\['a'\]\.sizes\[1\] is nan"),
    ],
)
def test_specs_without_exact_text_are_refused(spec, words):
    with pytest.raises(InputError, match=words):
        trial(spec)


@pytest.mark.parametrize("seed", [-1, 2**63, True])
def test_bad_seeds(seed):
    with pytest.raises(InputError, match="give an integer"):
        trial({}, seed)


@pytest.mark.parametrize("function", ["draw", ":draw", "module:", "a.b:c.d", "module:lambda x"])
def test_bad_function_names(function):
    with pytest.raises(InputError, match=r"package\.module:name"):
        Trial(function, {}, 0)


def test_functions_of_the_main_script_are_refused():
    with pytest.raises(InputError, match="move it to a module"):
        Trial("__main__:f", {}, 0)


def test_resolve():
    assert resolve("trial_functions:nothing")({}, 3) == {"seed": 3}
    with pytest.raises(InputError, match="Did you mean 'nothing'"):
        resolve("trial_functions:nothin")
    with pytest.raises(InputError, match="cannot be imported: No module named 'no_such_module'"):
        resolve("no_such_module:f")
    with pytest.raises(InputError, match="is a module, not a function"):
        resolve("trial_functions:os")


def test_damaged_specs_are_refused():
    for text, words in [
        ("{", "not JSON"),
        ('{"$class":"math:pi"}', "not a frozen dataclass"),
        ('{"$class":"epoch0.distributions:Gaussian","bound":1.0}', "does not take the fields"),
        ('{"$class":"epoch0.distributions:Gausian"}', "Did you mean 'Gaussian'"),
    ]:
        with pytest.raises(InputError, match=words):
            read_canonical(text)
