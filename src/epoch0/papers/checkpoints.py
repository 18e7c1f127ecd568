"""Where a trial that trains keeps its checkpoint, so that one that was killed goes on from there."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from epoch0.experiments.experiment import canonical_json


@contextmanager
def checkpoint_of(spec: Any, seed: int) -> Iterator[Path | None]:
    """The file of this trial in the folder that EPOCH0_CHECKPOINTS names, or None; removed when the trial is done."""
    folder = os.environ.get("EPOCH0_CHECKPOINTS", "").strip()
    if not folder:
        yield None
        return
    name = hashlib.sha256(f"{canonical_json(spec)} {seed}".encode()).hexdigest()[:24]
    path = Path(folder) / f"{name}.safetensors"
    yield path
    for own in Path(folder).glob(f"{path.name}*"):
        own.unlink()
