"""Forward derivatives without torch's warning about itself (THEORY 1.2b)."""

import importlib
import sys
import warnings

_MODULE = "torch._decomp.decompositions_for_jvp"


def prepare_forward_derivatives() -> None:
    """Import what torch imports on the first dual number or jvp, with a deprecation warning about its own code.

    Only that import is quiet, and only the first time: warnings of the user's model are the user's.
    """
    if _MODULE not in sys.modules:
        with warnings.catch_warnings():
            for kind in (DeprecationWarning, FutureWarning):  # which of them depends on the version of torch
                warnings.simplefilter("ignore", kind)
            importlib.import_module(_MODULE)
