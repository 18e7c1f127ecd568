"""The checkup of a network before its first epoch: measured, judged, explained and shown.

>>> print(checkup(net, x).verdict)                              # x of shape (examples, ...)
"""

from epoch0.diagnosis.checkup import checkup
from epoch0.diagnosis.comparison import Comparison
from epoch0.diagnosis.result import Checkup, LayerCheckup

__all__ = ["Checkup", "Comparison", "LayerCheckup", "checkup"]
