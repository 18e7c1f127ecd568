"""The checkup of a network before its first epoch: measured, assessed, explained and shown.

>>> print(checkup(net, x, y).verdict)                           # x of shape (100, 64), y of shape (100,)
Trains with either, Adam at a rate of about 0.003 or SGD at 0.1.
"""

from epoch0.diagnosis.checkup import checkup
from epoch0.diagnosis.result import Checkup, Comparison, LayerCheckup

__all__ = ["Checkup", "Comparison", "LayerCheckup", "checkup"]
