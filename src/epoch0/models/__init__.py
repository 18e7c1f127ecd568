"""Models named on the command line, and inputs that they accept.

>>> _ = Path("small.py").write_text("import torch; build = lambda: torch.nn.Linear(64, 10)")
>>> model = load_model("small.py:build")
>>> inputs_for(model, data="digits").x.shape                    # flat, because the model refuses images
torch.Size([64, 64])
"""

from epoch0.models.inputs import Inputs, inputs_for
from epoch0.models.loading import load_activation, load_model, load_program

__all__ = ["Inputs", "inputs_for", "load_activation", "load_model", "load_program"]
