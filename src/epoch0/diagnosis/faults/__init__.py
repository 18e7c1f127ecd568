"""Why a program does not learn: what shows before training it, in one table of checks.

>>> [fault.kind for fault in find_faults(net, x, y).faults]         # x of shape (100, 64), y of shape (100,)
[]
"""

from epoch0.diagnosis.faults.evidence import KINDS, Evidence, Fault
from epoch0.diagnosis.faults.find import UNTRAINED, FoundFaults, apart, conclude, evidence, find_faults, suspects
from epoch0.diagnosis.faults.mend import Mending

__all__ = ["KINDS", "UNTRAINED", "Evidence", "Fault", "FoundFaults", "Mending"]
__all__ += ["apart", "conclude", "evidence", "find_faults", "suspects"]
