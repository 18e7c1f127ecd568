"""Types at run time, in tests: beartype on the functions and dataclasses of the package, an int where a float may be.

A function is wrapped where it is defined and read by beartype at its first call, when every name in its types is there.
Functions inside functions are left alone: they would be read anew each time, a thousand times the price of a call.
"""

import ast
import contextlib
import dataclasses
import functools
import sys
import types
import typing
from importlib.machinery import PathFinder, SourceFileLoader

from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=TypeError))


def checker(made):
    """The function with its types checked; of a class, the ``__init__`` of a dataclass that does not check its own."""
    if isinstance(made, type):
        if dataclasses.is_dataclass(made) and "__init__" in vars(made) and not hasattr(made.__init__, "__wrapped__"):
            made.__init__ = checker(made.__init__)
        return made
    checked = None

    @functools.wraps(made)
    def call(*args, **named):
        nonlocal checked
        if checked is None:
            made.__annotations__ = _types(made)
            checked = _beartype(made)
        return checked(*args, **named)

    return call


def _types(made):
    """Those whose names are there at run time: some are imported for mypy alone."""
    found = {}
    for name, hint in made.__annotations__.items():
        with contextlib.suppress(NameError, AttributeError):
            found |= typing.get_type_hints(
                types.SimpleNamespace(__annotations__={name: hint}), made.__globals__, include_extras=True
            )
    return found


class _Loader(SourceFileLoader):
    def get_code(self, name):
        places = [ast.parse(self.get_data(self.path))]
        for place in places:
            for node in place.body:
                if isinstance(node, ast.ClassDef):
                    places.append(node)
                    node.decorator_list.insert(0, ast.Name("_checker", ast.Load(), lineno=node.lineno, col_offset=0))
                elif isinstance(node, ast.FunctionDef):
                    node.decorator_list.append(ast.Name("_checker", ast.Load(), lineno=node.lineno, col_offset=0))
        return compile(ast.fix_missing_locations(places[0]), self.path, "exec", dont_inherit=True)

    def exec_module(self, module):
        module._checker = checker
        super().exec_module(module)


class _Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        spec = super().find_spec(name, path, target) if name.partition(".")[0] == "epoch0" else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def install() -> None:
    """For everything of the package that is imported from now on."""
    sys.meta_path.insert(0, _Finder)
