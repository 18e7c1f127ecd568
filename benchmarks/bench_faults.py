"""How well faults are found: programs that did not learn, broken and mended, from the folder that EPOCH0_FAULTS names.

    EPOCH0_FAULTS=FOLDER python benchmarks/bench_faults.py [--half seen|unseen] [NAME ...]

The folder holds ``faults.py`` (``load()`` gives programs with switches for their fixes) and ``outcomes.json`` (which
fixes mend them, by training). Limits were set on one half of the programs, chosen by a hash of their sources.
"""

import argparse
import hashlib
import importlib
import json
import os
import sys
import time
import warnings
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from epoch0.diagnosis.faults import Found, find_faults


def unseen(name: str) -> bool:
    """Whether a program was left out when limits were set; the programs of one family go together."""
    family = "-".join(name.split("-")[:2]) if name.startswith("deepchecker") else name
    return hashlib.sha256(family.encode()).digest()[0] % 2 == 1


def look(program) -> Found:
    """The faults that are found in a program as its owner has it."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(program.inputs), generator=draw)[:100]
    loader = DataLoader(
        TensorDataset(program.inputs, program.targets), program.batch_size, shuffle=True, generator=draw
    )
    return find_faults(
        program.model, program.inputs[rows], program.targets[rows], loss=program.loss,
        optimizer=program.optimizer(program.model), data=loader, step=program.step,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--half", choices=("seen", "unseen"))
    arguments = parser.parse_args()
    folder = Path(os.environ["EPOCH0_FAULTS"])
    sys.path.insert(0, str(folder))
    outcomes = json.loads((folder / "outcomes.json").read_text())
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows: dict[bool, list[tuple[bool, bool, bool, bool, float]]] = {False: [], True: []}
    for name, fault in importlib.import_module("faults").load().items():
        if arguments.names and name not in arguments.names:
            continue
        if arguments.half and unseen(name) != (arguments.half == "unseen"):
            continue
        causes, kinds, seconds = outcomes[name]["causes"], [], 0.0
        for fixes in (frozenset(), frozenset(fault.fixes)):
            torch.manual_seed(0)
            program = fault.build(fixes)
            started = time.process_time()
            try:
                found = look(program)
                kinds.append([one.kind for one in found.faults])
                if found.passes > 15:
                    print(f"  {name}: {found.passes} passes")
            except Exception as error:
                kinds.append([f"{type(error).__name__}: {error}"])
            seconds += (time.process_time() - started) / 2
        broken, mended = kinds
        right = [kind in causes for kind in broken]
        rows[unseen(name)].append((bool(broken), not mended, any(right[:1]), any(right[:3]), seconds))
        mark = "first" if any(right[:1]) else "three" if any(right[:3]) else "wrong" if broken else "none"
        print(f"{name:38} {mark:6} {', '.join(causes)} <- {', '.join(broken)} | {', '.join(mended)}", flush=True)
    for half, found_rows in rows.items():
        if found_rows:
            flagged, sound, first, three, _ = (sum(column) for column in zip(*found_rows, strict=True))
            print(
                f"{'unseen' if half else 'seen':6} {len(found_rows)} programs: broken flagged {flagged}, mended called "
                f"sound {sound}, a true cause first {first}, among the first three {three}, "
                f"{sum(row[4] for row in found_rows) / len(found_rows):.2f} CPU s a program"
            )


if __name__ == "__main__":
    main()
