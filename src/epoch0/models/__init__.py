"""Models named on the command line, and inputs that they accept.

>>> model = load_model("nets/small.py:build")
>>> batch = inputs_for(model, data="digits")
"""

from epoch0.models.functions import load_activation
from epoch0.models.inputs import Inputs, inputs_for
from epoch0.models.loading import load_model

__all__ = ["Inputs", "inputs_for", "load_activation", "load_model"]
