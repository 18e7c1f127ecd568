"""Scores of weights: the larger, the more worth keeping (Hayou et al. 2021, section 2.1).

A function in a module here that is decorated with ``listed`` is in the table of scores: ``epoch0.prune`` and the
command line have it from there.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
