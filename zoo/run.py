"""``make zoo``: the checkup of every model of the zoo, beside what plain training gave.

``python zoo/run.py [ONLY] [--write] [--no-trial] [--seconds 300]``; ONLY is a part of a name, several with commas. Each
model has a process of its own. What it prints: the verdict, whether it agrees with ``outcomes.json`` for each recipe,
the rows, what the checkup without its trial costs in passes forward and backward over the same batch (CPU seconds, one
thread), its peak of memory over that of a pass, and whether the model came back as it was, to the bit.
"""

import argparse
import ctypes
import inspect
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import models

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"
PAGE = HERE.parent / "docs" / "zoo.md"
MARK = "<!-- the table: make zoo WRITE=1 -->"
RECIPE = ("trains", "probability", "learning_rate", "evidence")
COLUMNS = ("model", "training", "verdict", "agrees", "rows", "passes", "CPU s", "memory", "trial s", "unchanged")


def examine(name: str, trial: bool) -> dict[str, Any]:
    """One model, in this process."""
    import cases
    import torch

    import epoch0

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case = models.build(name)
    batch, targets = case.draw(0)
    found: dict[str, Any] = {"model": name}

    def passed() -> None:
        case.model.zero_grad(set_to_none=True)
        cases.loss_of(case, 0).backward()

    passed()  # what is made once is made now
    base = _memory()
    found["pass"] = min(_seconds(passed) for _ in range(2))
    found["pass bytes"] = _peak() - base
    case = models.build(name)
    before = _state(case.model)
    takes = inspect.signature(epoch0.checkup).parameters
    given = {"loss": case.loss, "forward": case.forward}
    arguments = {key: value for key, value in given.items() if value is not None}

    def checked(**how: Any) -> Any:
        return epoch0.checkup(case.model, batch, targets, **arguments, **how)

    try:
        base, began = _memory(), time.process_time()
        report = checked(**({"trial": False} if "trial" in takes else {}))
        found["step 0"] = time.process_time() - began
        found["bytes"] = _peak() - base
        if trial and "trial" in takes:
            began = time.process_time()
            report = checked()
            found["with trial"] = time.process_time() - began
        found.update(_said(report))
    except Exception as problem:
        found["error"] = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
        found["refused"] = type(problem).__name__ == "InputError"
    found["unchanged"] = _same(before, _state(case.model))
    return found


def _said(report: Any) -> dict[str, Any]:
    recipes = getattr(report, "recipes", None) or {}
    rows = getattr(report, "rows", None) or getattr(report, "layers", ())
    return {
        "verdict": report.verdict, "trains": bool(report.trains), "outcome": str(report.outcome), "rows": len(rows),
        "recipes": {
            kind: {key: getattr(recipes[kind], key, None) for key in RECIPE} for kind in recipes
        },
    }  # fmt: skip


def _seconds(run: Any) -> float:
    began = time.process_time()
    run()
    return time.process_time() - began


def _memory() -> int:
    """Bytes in use, after what was freed is handed back; the peak starts anew from here."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def _state(model: Any) -> dict[str, Any]:
    """All tensors, gradients and modes of a model, as bytes."""
    import torch

    def bits(tensor: Any) -> bytes | None:
        if tensor is None:
            return None
        return tensor.detach().contiguous().flatten().view(torch.uint8).numpy().tobytes()

    found: dict[str, Any] = {key: bits(value) for key, value in model.state_dict().items()}
    found.update({f"{name} gradient": bits(p.grad) for name, p in model.named_parameters()})
    found.update({f"{name} mode": (m.training, len(m._forward_hooks)) for name, m in model.named_modules()})
    found.update({f"{name} trainable": p.requires_grad for name, p in model.named_parameters()})
    return found


def _same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(before[key] == after[key] for key in before)


def table_row(found: dict[str, Any], truth: dict[str, Any] | None) -> dict[str, str]:
    """What is printed of a model."""
    row = dict.fromkeys(COLUMNS, "")
    row["model"] = found["model"]
    row["training"] = _training(truth)
    row["unchanged"] = {True: "yes", False: "**no**", None: ""}[found.get("unchanged")]
    if "error" in found:
        row["verdict"] = f"{'refused' if found.get('refused') else '**fails**'}: {found['error'][:200]}"
        row["agrees"] = "" if found.get("refused") and found["model"] in models.REFUSED else "no"
        return row
    row["verdict"] = found["verdict"]
    row["agrees"] = agreement(found, truth)
    row["rows"] = str(found["rows"])
    row["passes"] = f"{found['step 0'] / found['pass']:.1f}"
    row["CPU s"] = f"{found['step 0']:.2f}"
    row["memory"] = f"{found['bytes'] / max(found['pass bytes'], 1):.1f}"
    row["trial s"] = f"{found['with trial'] - found['step 0']:.1f}" if "with trial" in found else ""
    return row


def _training(truth: dict[str, Any] | None) -> str:
    if truth is None:
        return "?"
    words = {"trains": "yes", "slow": "slowly", "fails": "no", "unknown": "?"}
    return f"Adam {words[truth['adam']['outcome']]}, SGD {words[truth['sgd']['outcome']]}"


def agreement(found: dict[str, Any], truth: dict[str, Any] | None) -> str:
    """Which answers are wrong; "yes" if none, slow training and what is unknown being right either way."""
    if truth is None:
        return "?"
    known = {kind: truth[kind]["outcome"] for kind in ("adam", "sgd")}
    wrong = []
    for kind, outcome in known.items():
        said = found["recipes"].get(kind, {}).get("trains")
        if said is not None and outcome in ("trains", "fails") and said != (outcome == "trains"):
            wrong.append(f"{'Adam' if kind == 'adam' else 'SGD'}: {'trains' if outcome == 'trains' else 'does not'}")
    either = "trains" if "trains" in known.values() else "fails" if set(known.values()) == {"fails"} else "open"
    if either != "open" and found["trains"] != (either == "trains"):
        wrong.insert(0, "**false alarm**" if either == "trains" else "**missed**")
    return "no: " + "; ".join(wrong) if wrong else "yes"


def markdown(rows: list[dict[str, str]]) -> str:
    """The table of the docs."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row[c].replace("|", "\\|") for c in COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def summary(rows: list[dict[str, str]]) -> str:
    """One line for each of the things that count."""
    stock = [row for row in rows if row["model"] in models.ZOO]
    broken = [row for row in rows if row["model"] in models.BROKEN]
    lines = []
    for what, some in (("stock models", stock), ("broken twins", broken)):
        if some:
            right = sum(row["agrees"] == "yes" for row in some)
            alarms = sum("false alarm" in row["agrees"] for row in some)
            missed = sum("missed" in row["agrees"] for row in some)
            failed = sum("fails**" in row["verdict"] or row["verdict"].startswith("refused") for row in some)
            changed = sum(row["unchanged"] == "**no**" for row in some)
            lines.append(
                f"{len(some)} {what}: {right} as training says for both recipes, {alarms} false alarms, "
                f"{missed} missed, {failed} refused or failed, {changed} not given back as they were"
            )
    costs = sorted(float(row["passes"]) for row in rows if row["passes"])
    if costs:
        lines.append(f"cost in passes: median {costs[len(costs) // 2]:.1f}, largest {costs[-1]:.1f}")
    return "\n".join(f"{line}." for line in lines)


def _one(name: str, trial: bool, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", str(HERE / "run.py"), "--one", name, *([] if trial else ["--no-trial"])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"model": name, "error": f"not done after {seconds:.0f} s"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            return dict(json.loads(line))
    return {"model": name, "error": (done.stderr.strip().splitlines() or ["no output"])[-1]}


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("only", nargs="?", default="", help="parts of names, with commas")
    arguments.add_argument("--write", action="store_true", help=f"also put the table into docs/{PAGE.name}")
    arguments.add_argument("--no-trial", action="store_true", help="what step 0 alone says")
    arguments.add_argument("--seconds", type=float, default=600.0, help="a model may take")
    arguments.add_argument("--json", type=Path, help="also keep all that was found in this file")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        print("\n" + json.dumps(examine(given.one, not given.no_trial)), flush=True)
        return
    truth = json.loads(OUTCOMES.read_text())["models"] if OUTCOMES.exists() else {}
    parts = [part.strip().lower() for part in given.only.split(",")]
    names = [name for name in {**models.ZOO, **models.BROKEN} if any(part in name.lower() for part in parts)]
    if not names:
        sys.exit(f"no model of the zoo has {given.only!r} in its name")
    rows, kept = [], []
    for name in names:
        found = _one(name, not given.no_trial, given.seconds)
        kept.append(found)
        rows.append(table_row(found, truth.get(name)))
        row = rows[-1]
        print(f"{name}: training: {row['training']}; {row['verdict']}")
        print("    " + ", ".join(f"{key} {row[key]}" for key in COLUMNS[3:] if row[key]), flush=True)
    print("\n" + summary(rows))
    if given.json:
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
    if given.write:
        write(rows)


def write(rows: list[dict[str, str]]) -> None:
    """Put the table behind its mark in the page, which is made if it is not there."""
    head = PAGE.read_text().split(MARK)[0] if PAGE.exists() else "# The zoo\n\n"
    PAGE.write_text(f"{head}{MARK}\n\n{summary(rows)}\n\n{markdown(rows)}\n")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
