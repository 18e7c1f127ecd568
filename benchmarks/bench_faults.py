"""How well faults are found: programs that did not learn, broken and mended, with what mends them measured.

    python benchmarks/bench_faults.py              # figures of what was measured, certainties cross-validated
    python benchmarks/bench_faults.py --measure [NAME ...] [--seconds S]    # looks at the programs anew
    python benchmarks/bench_faults.py --sound      # what is said of loop_bodies.py and sound_programs*.py, all sound
    python benchmarks/bench_faults.py --peers      # torchtest2 and neural-net-checklist, in .venv-zoo

The programs: ``benchmarks/faults``, or the folders that EPOCH0_FAULTS names, with ":" between. Each holds ``faults.py``
(``load()`` gives programs with switches for their fixes) and ``outcomes.json`` (which fixes mend them, by training).
What was found is kept in ``fault_numbers.json``.
"""

import argparse
import hashlib
import importlib
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.optimize import minimize
from torch.utils.data import DataLoader, TensorDataset

HERE = Path(__file__).parent
NUMBERS = HERE / "fault_numbers.json"
OWN = HERE / "faults"


def programs(folder: Path) -> Iterator[tuple[str, list[str], Callable]]:
    """Names, causes, and what builds each program, broken or mended."""
    for name in [name for name in sys.modules if name == "faults" or name.startswith(("cases_", "common", "data_"))]:
        del sys.modules[name]  # another folder's
    sys.path.insert(0, str(folder))
    outcomes = json.loads((folder / "outcomes.json").read_text())
    try:
        for name, fault in importlib.import_module("faults").load().items():

            def build(mended: bool, fault=fault):
                torch.manual_seed(0)
                return fault.build(frozenset(fault.fixes) if mended else frozenset())

            if name in outcomes and outcomes[name].get("reproduces", True):
                yield name, outcomes[name]["causes"], build
    finally:
        sys.path.remove(str(folder))


def given(program) -> tuple:
    """Batch, targets and loader of a program as its owner has it."""
    draw = torch.Generator().manual_seed(0)
    rows = torch.randperm(len(program.inputs), generator=draw)[:100]
    data = TensorDataset(program.inputs, program.targets)
    return program.inputs[rows], program.targets[rows], DataLoader(data, program.batch_size, True, generator=draw)


def look(program, seconds: float) -> dict:
    """What is found in one program."""
    from dataclasses import replace

    from epoch0.diagnosis.faults import find, mend

    read: dict[float, list] = {}

    def weighed(fault, alone=False):  # also notes what it is given
        found = original(fault, alone)
        found = replace(found, certainty=found.certainty * (1 - 1e-9 * len(read)))
        read[found.certainty] = [round(fault.certainty, 4), int(fault.evidence != "step 0"), int(alone)]
        return found

    original, mend.weighed = mend.weighed, weighed
    started = time.process_time()
    x, y, loader = given(program)
    optimizer = program.optimizer(program.model)
    try:
        found = find.find_faults(
            program.model, x, y, loss=program.loss, optimizer=optimizer, data=loader, step=program.step, seconds=seconds
        )
    except Exception as error:
        mend.weighed = original
        return {"error": f"{type(error).__name__}: {error}", "faults": [], "seconds": time.process_time() - started}
    mend.weighed = original
    faults = [[one.kind, *read.get(one.certainty, [one.certainty])] for one in found.faults]
    own = None if found.mending is None else found.mending.own
    known, held = (None if one is None else round(one, 3) for one in (own and own.known, own and own.held))
    return {
        "faults": faults,
        "known": known,
        "held": held,
        "passes": found.passes,
        "seconds": round(time.process_time() - started, 2),
    }


def measure(names: list[str], seconds: float) -> None:
    """Look at all programs, broken and mended, and keep what was found after each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for folder in [Path(part) for part in os.environ.get("EPOCH0_FAULTS", "").split(":") if part] or [OWN]:
        for name, causes, build in programs(folder):
            if names and name not in names:
                continue
            one = {"folder": "own" if folder == OWN else "given", "causes": causes}
            one |= {what: look(build(what == "mended"), seconds) for what in ("broken", "mended")}
            known[name] = known.get(name, {}) | one  # what peers said of it stays
            told = {what: ", ".join(kind for kind, *_ in one[what]["faults"]) for what in ("broken", "mended")}
            print(f"{name:38} {standing(one):6} {', '.join(causes)} <- {told['broken']} | {told['mended']}", flush=True)
            if not names:
                NUMBERS.write_text(json.dumps(known, indent=0) + "\n")


def sound() -> dict[str, dict[str, list[str]]]:
    """What is said of sound programs: with loop bodies as people write them, and handed over in all their ways.

    And of these with a fault each.
    """
    import broken_programs
    import loop_bodies
    import sound_programs
    import sound_programs_fourth
    import sound_programs_more
    import sound_programs_third
    import tutorial_programs

    import epoch0 as e0

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    told: dict[str, dict[str, list[str]]] = {}

    def tell(kind: str, name: str, *given, causes: tuple[str, ...] = (), **named) -> None:
        try:
            found = e0.checkup(*given, **named)
            said = "learns" if found.trains and not found.faults else "condemned"
            said = "not judged" if found.outcome == "not judged" else said
            if causes and found.faults:
                right = [fault.kind in causes for fault in found.faults[:3]]
                said = "a true cause first" if right[0] else "among three" if any(right) else "another cause"
        except e0.InputError:
            said = "refused"
        told.setdefault(kind, {}).setdefault(said, []).append(name)

    for name, build in loop_bodies.PROGRAMS.items():
        it = build()
        given = {what: it[what] for what in ("loss", "optimizer", "step")}
        tell("loop bodies", name, it["model"], it["x"], it["y"], data=(it["X"], it["Y"]), **given)
    lots = {
        "ways to hand over": sound_programs, "after tutorials": sound_programs_more,
        "after courses and papers": sound_programs_third, "in how they train": sound_programs_fourth,
        "with the rates of tutorials": tutorial_programs,
    }  # fmt: skip
    for kind, lot in lots.items():
        for name, build in lot.PROGRAMS.items():
            given, named, *_ = build()
            tell(kind, name, *given, **named)
    for name, (build, causes) in broken_programs.PROGRAMS.items():
        given, named, _, _ = build()
        tell("the same with a fault", name, *given, causes=causes, **named)
    return told


def peers(seconds: int = 60) -> None:
    """What torchtest2 and neural-net-checklist say of the same programs; in the environment of ``make zoo``."""
    import contextlib
    import io
    import signal

    from neural_net_checklist import torch_diagnostics as checklist
    from torchtest2 import check_model

    def late(*_: object) -> None:
        raise TimeoutError

    def checked(program) -> str:
        x, y, _ = given(program)
        optimizer = program.optimizer(program.model)
        report = check_model(program.model, x, y, loss_fn=program.loss, optimizer=optimizer)
        return "FAIL" if report.failures else "WARN" if report.warnings else "PASS"

    def listed(build: Callable) -> str:
        program = build()
        x, y, _ = given(program)
        out = program.model(x)
        if y.is_floating_point() or y.dim() != 1 or out.dim() != 2 or out.shape[1] < 2:
            return "not for it"  # it is made for classes, and has a cross-entropy of its own
        try:
            checklist.assert_all_for_classification_cross_entropy_loss(
                lambda: build().model, (x, y), num_classes=out.shape[1]
            )
        except AssertionError:
            return "FAIL"
        return "PASS"

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, late)
    known = json.loads(NUMBERS.read_text())
    for folder in [Path(part) for part in os.environ.get("EPOCH0_FAULTS", "").split(":") if part] or [OWN]:
        for name, _, build in programs(folder):
            for what in ("broken", "mended"):
                mended = what == "mended"
                for peer, run in (
                    ("torchtest2", lambda b=build, m=mended: checked(b(m))),
                    ("checklist", lambda b=build, m=mended: listed(lambda: b(m))),
                ):
                    silent = contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO())
                    signal.alarm(seconds)
                    try:
                        with silent[0], silent[1]:
                            said = run()
                    except TimeoutError:
                        said = "too long"
                    except Exception as error:
                        said = f"FAIL: {type(error).__name__}"
                    signal.alarm(0)
                    known[name].setdefault(peer, {})[what] = said
            print(f"{name:38} torchtest2 {known[name]['torchtest2']} checklist {known[name]['checklist']}", flush=True)
            NUMBERS.write_text(json.dumps(known, indent=0) + "\n")


def beside(known: dict[str, dict]) -> Iterator[str]:
    """The peers' figures: an exception counts as a fail."""
    for peer, levels in (("torchtest2", ("FAIL", "FAIL or WARN")), ("checklist", ("FAIL",))):
        asked = [one[peer] for one in known.values() if peer in one]
        told = [one for one in asked if one["broken"] != "not for it"]
        for level in levels if told else ():
            bad = tuple(level.split(" or "))
            flagged = sum(one["broken"].startswith(bad) for one in told)
            sound = sum(not one["mended"].startswith(bad) for one in told)
            yield f"{peer}, {level}: of {len(told)} programs flagged {flagged}, mended sound {sound}; no causes named"


def standing(one: dict, weights: np.ndarray | None = None) -> str:
    """Where the first true cause stands; ranked anew by other weights of certainties."""
    faults = one["broken"]["faults"]
    if weights is not None:
        faults = sorted(faults, key=lambda f: -(np.dot([logit(f[1]), *f[2:], 1.0], weights) if f[2:] else logit(f[1])))
    right = [kind in one["causes"] for kind, *_ in faults]
    return "first" if any(right[:1]) else "three" if any(right[:3]) else "wrong" if right else "none"


def source(name: str) -> str:
    """The collection that a program is of; programs of one go together."""
    return "-".join(name.split("-")[:2]) if name.startswith("deepchecker") else name.split("-")[0]


def unseen(name: str) -> bool:
    """Whether a program was left out when limits were first set."""
    family = "-".join(name.split("-")[:2]) if name.startswith("deepchecker") else name
    return hashlib.sha256(family.encode()).digest()[0] % 2 == 1


def figures(some: dict[str, dict]) -> str:
    """What counts, in one line."""
    flagged = sum(bool(one["broken"]["faults"]) for one in some.values())
    sound = sum(not one["mended"]["faults"] for one in some.values())
    places = [standing(one) for one in some.values()]
    first, three = places.count("first"), places.count("first") + places.count("three")
    errors = sum("error" in one[what] for one in some.values() for what in ("broken", "mended"))
    spent = [one[what]["seconds"] for one in some.values() for what in ("broken", "mended")]
    return (
        f"{len(some):3} programs: flagged {flagged}, mended sound {sound}, first {first}, among three {three}, "
        f"exceptions {errors}, CPU s {sum(spent) / len(spent):.1f} (at most {max(spent):.0f})"
    )


def reports(some: dict[str, dict]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each fault that was weighed: its certainty and what was tried, whether it is true, and its source."""
    x, y, of = [], [], []
    for name, one in some.items():
        for what in ("broken", "mended"):
            for kind, certainty, *flags in one[what]["faults"]:
                if flags:
                    x.append([logit(certainty), *flags])
                    y.append(what == "broken" and kind in one["causes"])
                    of.append(source(name))
    return np.array(x, dtype=float), np.array(y), np.array(of)


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Logistic weights of a certainty and of what was tried, and the intercept; a little penalty keeps them finite."""
    sign = np.where(y, 1.0, -1.0)

    def cost(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -sign * (x @ w[:-1] + w[-1])).sum() + 0.1 * (w[:-1] ** 2).sum())

    bounds = [(0, None), (0, None), (None, None), (None, None)]
    return minimize(cost, np.array([1.0, 0.0, 0.0, 0.0]), bounds=bounds).x


def calibration(some: dict[str, dict]) -> None:
    """How true certainties are: as the checks have them, and fitted, cross-validated by source."""
    x, y, of = reports(some)
    p, places = np.empty(len(y)), []
    for group in sorted({source(name) for name in some}):
        w = fit(x[of != group], y[of != group])
        p[of == group] = 1 / (1 + np.exp(-(x[of == group] @ w[:-1] + w[-1])))
        places += [standing(one, w) for name, one in some.items() if source(name) == group]
    first, three = places.count("first"), places.count("first") + places.count("three")
    print(f"ranked by weights fitted to the other sources: first {first}, among three {three} of {len(places)}")
    raw = 1 / (1 + np.exp(-x[:, 0]))
    for what, q in (("as the checks have them", raw), ("fitted, leaving out each source", p)):
        score = np.square(q - y).mean()
        bins = [(low, (q >= low) & (q < low + 0.2)) for low in (0, 0.2, 0.4, 0.6, 0.8)]
        table = ", ".join(f"{low:.1f}-{low + 0.2:.1f}: {y[b].mean():.2f} of {b.sum()}" for low, b in bins if b.any())
        print(f"certainties {what}: Brier {score:.3f} (of the mean {np.square(y.mean() - y).mean():.3f}); {table}")
    print("CERTAINTY =", tuple(round(float(v), 2) for v in fit(x, y)))


def report() -> None:
    """Print the figures of what was measured."""
    known = json.loads(NUMBERS.read_text())
    parts = {
        "limits were set on": {n: o for n, o in known.items() if o["folder"] == "given" and not unseen(n)},
        "the other half": {n: o for n, o in known.items() if o["folder"] == "given" and unseen(n)},
        "collected afterwards": {n: o for n, o in known.items() if o["folder"] == "own"},
    }
    for what, some in parts.items():
        if some:
            print(f"{what:22}{figures(some)}")
    for line in beside(known):
        print(line)
    calibration(known)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--sound", action="store_true")
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.names, arguments.seconds)
    if arguments.peers:
        peers()
    if arguments.sound:
        for kind, told in sound().items():
            for what, names in told.items():
                print(f"{kind}, {what}: {len(names)} {'' if what == 'learns' else ', '.join(names)}")
        return
    if arguments.names or not NUMBERS.exists():
        return
    report()


if __name__ == "__main__":
    main()
