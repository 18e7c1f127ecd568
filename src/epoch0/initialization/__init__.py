"""Set a network to the edge of chaos, layer by layer (Hayou et al. 2021, sections 2.2 and B.1).

>>> from epoch0.initialization import initialize, save
>>> print(initialize(model, x=x))                              # x of shape (examples, ...)
3 weights set for a gain of 1, by theory, seed 0
...
"""

from epoch0.initialization.files import check_path, save
from epoch0.initialization.initialize import initialize
from epoch0.initialization.result import Initialization, LayerInit

__all__ = ["Initialization", "LayerInit", "check_path", "initialize", "save"]
