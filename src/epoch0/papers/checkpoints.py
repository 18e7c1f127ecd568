"""Where a trial that trains keeps its checkpoint, so that one that was killed goes on from there."""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from epoch0.experiments.experiment import canonical_json


@contextlib.contextmanager
def checkpoint_of(spec: Any, seed: int) -> Iterator[Path | None]:
    """The file of this trial in the folder that EPOCH0_CHECKPOINTS names; removed when the trial is done.

    >>> with checkpoint_of(spec, seed) as path:
    ...     train(net, data, steps=1000, checkpoint=path)

    Args:
        spec: of the trial, a frozen dataclass.
        seed: of the trial.

    Returns:
        None if there is no such folder.
    """
    folder = os.environ.get("EPOCH0_CHECKPOINTS", "").strip()
    if not folder:
        yield None
        return
    name = hashlib.sha256(f"{canonical_json(spec)} {seed}".encode()).hexdigest()[:24]
    path = Path(folder) / f"{name}.safetensors"
    yield path
    for own in Path(folder).glob(f"{path.name}*"):
        own.unlink()
