"""Scores of weights: the larger, the more worth keeping (Hayou et al. 2021, section 2.1).

Every module here is imported, so that what it marks as a score is in TABLE.
"""

import importlib
import pkgutil

from epoch0.prune.scores.scores import TABLE

__all__ = ["TABLE"]

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
