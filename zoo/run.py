"""``make zoo``: the checkup of every model of the zoo, beside what plain training gave.

``python zoo/run.py [ONLY] [--write] [--json FILE] [--no-trial]``; ONLY is a part of a name, several with commas. Each
model has a process of its own. What it prints: the verdict and the probabilities of Adam and SGD (from step 0 alone in
brackets), whether it agrees with ``outcomes.json`` for each recipe, the rows, what the checkup without trial and
remedies costs in passes forward and backward over the same batch (CPU seconds, one thread), its peak of memory over
that of a pass, weights included in both, and whether the model came back as it was, to the bit.
"""

import argparse
import ctypes
import importlib
import json
import multiprocessing
import os
import sys
import time
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"
os.environ["HF_HUB_OFFLINE"] = "1"

import cases
import torch
import torch._dynamo  # torch loads it at the first derivative

import models
from epoch0 import checkup
from epoch0.diagnosis.faults import find_faults

HERE = Path(__file__).parent
OUTCOMES = HERE / "outcomes.json"
PAGE = HERE.parent / "docs" / "zoo.md"
LARGE = 50 * 2**20
"""Bytes of a pass from which its memory is compared: below, what the process itself takes is larger."""
BATCHES = 8
"""Batches that a stock model is trained on as a program of its owner's, with Adam at the suggested rate."""
LIBRARIES = {
    "torchvision": "torchvision", "timm": "timm", "hf": "transformers", "diffusers": "diffusers",
    "pyg": "torch_geometric",
}  # fmt: skip
"""What the models come from, by the beginning of their names."""
READ = ("probability", "learning_rate", "evidence", "cause", "numbers")
COLUMNS = (
    "model", "training", "verdict", "Adam", "SGD", "agrees", "rows", "passes", "CPU s", "memory", "trial s", "unchanged"
)  # fmt: skip


def examine(name: str, trial: bool) -> dict[str, Any]:
    """One model, in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    case = models.build(name)
    batch, targets = case.draw(0)
    found: dict[str, Any] = {"model": name}

    def passed() -> None:
        case.model.zero_grad(set_to_none=True)
        cases.loss_of(case, 0).backward()

    weights = sum(p.numel() * p.element_size() for p in case.model.parameters())
    passed()  # what is made once is made now
    case.model.zero_grad(set_to_none=True)
    base = _memory() - weights
    found["pass"] = min(_seconds(passed) for _ in range(2))
    found["pass bytes"] = _peak() - base
    case = models.build(name)
    before = _state(case.model)
    given = {"loss": case.loss, "forward": case.forward}
    arguments = {key: value for key, value in given.items() if value is not None}

    def checked(key: str, **how: Any) -> Any:
        base, began = _memory() - weights, time.process_time()
        report = checkup(case.model, batch, targets, **arguments, **how)
        found[key] = {"seconds": time.process_time() - began, "bytes": _peak() - base, **_said(report)}
        return report

    try:
        report = checked("whole", **({} if trial else {"trial": False}))
        if report.trial is None and not report.remedies:
            found["step 0"] = found["whole"]
        else:
            checked("step 0", trial=False, remedies=False)
            found["trial"] = 0.0 if report.trial is None else report.trial.seconds
        trained = [p for p in case.model.parameters() if p.requires_grad]
        optimizer = torch.optim.Adam(trained, report.recipes["adam"].learning_rate)
        data = [case.draw(number) if targets is not None else case.draw(number)[0] for number in range(BATCHES)]
        own = {"optimizer": optimizer, "data": data, "seconds": 60.0 if name in models.ZOO else 0.0}
        began = time.process_time()
        looked = find_faults(case.model, batch, targets, **own, **arguments)
        found["faults"], done = [str(fault) for fault in looked.faults], looked.mending
        found["program"] = "not judged" if done is None else "learns" if done.sound else "does not learn"
        found["search"] = time.process_time() - began
    except Exception as problem:
        found["error"] = f"{type(problem).__name__}: {' '.join(str(problem).split())}"
        found["refused"] = type(problem).__name__ == "InputError"
    found["unchanged"] = _same(before, _state(case.model))
    return found


def _said(report: Any) -> dict[str, Any]:
    recipes = report.recipes
    return {
        "verdict": report.verdict, "trains": report.trains, "outcome": report.outcome, "rows": len(report.layers),
        "recipes": {
            kind: {"trains": recipe.trains, **{key: getattr(recipe, key) for key in READ}}
            for kind, recipe in recipes.items()
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
    whole, alone = found["whole"], found["step 0"]
    row["verdict"] = whole["verdict"]
    row["agrees"] = agreement(whole, truth)
    for kind, column in (("adam", "Adam"), ("sgd", "SGD")):
        row[column] = f"{whole['recipes'][kind]['probability']:.2f}"
        if "trial" in found:
            row[column] += f" ({alone['recipes'][kind]['probability']:.2f})"
    row["rows"] = str(whole["rows"])
    row["passes"] = f"{alone['seconds'] / found['pass']:.1f}"
    row["CPU s"] = f"{alone['seconds']:.2f}"
    row["memory"] = f"{alone['bytes'] / max(found['pass bytes'], 1):.1f}"
    row["trial s"] = f"{found['trial']:.1f}" if found.get("trial") else ""
    return row


def _training(truth: dict[str, Any] | None) -> str:
    if truth is None:
        return "?"
    words = {"trains": "yes", "slow": "slowly", "fails": "no", "unknown": "?"}
    return f"Adam {words[truth['adam']['outcome']]}, SGD {words[truth['sgd']['outcome']]}"


def _known(truth: dict[str, Any] | None) -> dict[str, str]:
    """What training showed: 'trains', 'fails' or 'open' for each recipe, and for either of them."""
    named = {"trains": "trains", "fails": "fails"}
    known = {kind: named.get((truth or {}).get(kind, {}).get("outcome"), "open") for kind in ("adam", "sgd")}
    both = set(known.values())
    return {**known, "either": "trains" if "trains" in both else "fails" if both == {"fails"} else "open"}


def _wrong(said: dict[str, Any], truth: dict[str, Any] | None) -> list[str]:
    """The recipes, and "either", for which the verdict is not what training showed; what is open is never wrong."""
    answers = {kind: recipe["trains"] for kind, recipe in said["recipes"].items()} | {"either": said["trains"]}
    known = _known(truth)
    return [kind for kind in known if known[kind] != "open" and answers[kind] != (known[kind] == "trains")]


def agreement(said: dict[str, Any], truth: dict[str, Any] | None) -> str:
    """Which answers are wrong; "yes" if none, slow training and what is unknown being right either way."""
    known, words = _known(truth), {"adam": "Adam", "sgd": "SGD", "trains": "trains", "fails": "does not"}
    if set(known.values()) == {"open"}:
        return "?"
    wrong = _wrong(said, truth)
    alarm = {"trains": "**false alarm**", "fails": "**missed**"}
    parts = [alarm[known["either"]]] if "either" in wrong else []
    parts += [f"{words[kind]}: {words[known[kind]]}" for kind in wrong if kind != "either"]
    return "no: " + "; ".join(parts) if wrong else "yes"


def markdown(rows: list[dict[str, str]]) -> str:
    """The table of the docs."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row[c].replace("|", "\\|") for c in COLUMNS) + " |" for row in rows]
    return "\n".join(lines)


def summary(kept: list[dict[str, Any]], truths: dict[str, Any]) -> str:
    """What counts, in figures, with the names of what is wrong: from step 0 alone, and as the checkup is by default."""
    lines = []
    judged = [found for found in kept if "error" not in found]
    if failed := [found["model"] for found in kept if "error" in found]:
        lines.append(f"- No verdict for {len(failed)}: {_names(failed)}.")
    if changed := [found["model"] for found in kept if not found.get("unchanged")]:
        lines.append(f"- Not given back to the bit: {_names(changed)}.")
    for what, table in (("stock models", models.ZOO), ("broken twins", models.BROKEN)):
        some = [found for found in judged if found["model"] in table]
        known = {found["model"]: _known(truths.get(found["model"])) for found in some}
        of = {word: sum(k["either"] == word for k in known.values()) for word in ("trains", "fails", "open")}
        recipes = sum(k[kind] != "open" for k in known.values() for kind in ("adam", "sgd"))
        untried = sum(found["model"] not in truths for found in some)
        lines.append(
            f"- **{len(some)} {what}**, of which {of['trains']} train with one of the recipes or both, {of['fails']} "
            f"with neither, {of['open'] - untried} slowly or not surely; {untried} were not trained."
        )
        for level, words in (("whole", "The verdict"), ("step 0", "From step 0 alone it")):
            wrong = {found["model"]: _wrong(found[level], truths.get(found["model"])) for found in some}
            either = [name for name, kinds in wrong.items() if "either" in kinds]
            alarms = [name for name in either if known[name]["either"] == "trains"]
            missed = [name for name in either if known[name]["either"] == "fails"]
            flagged = [found["model"] for found in some if not found[level]["trains"]]
            right = recipes - sum(kind != "either" for kinds in wrong.values() for kind in kinds)
            lines.append(
                f"  - {words} says of {len(flagged)} that they do not train ({_names(flagged)}); wrongly of "
                f"{_names(alarms)}; it misses {_names(missed)}. Recipe by recipe it is right in {right} of {recipes} "
                "known answers."
            )
    searched = [found for found in judged if "faults" in found and found["model"] in models.ZOO]
    faulty = [f"{found['model']}: {' '.join(found['faults'])}" for found in searched if found["faults"]]
    said = {
        word: [found["model"] for found in searched if found["program"] == word]
        for word in ("learns", "not judged", "does not learn")
    }
    lines.append(
        f"- Of {len(searched)} stock models as programs (`optimizer=` Adam at the suggested rate, `data=` {BATCHES} "
        f"batches), {len(faulty)} are said to have a fault ({_names(faulty)}) and {len(said['does not learn'])} not to "
        f"learn ({_names(said['does not learn'])}); {len(said['learns'])} learn, and {len(said['not judged'])} are not "
        f"judged in 60 CPU seconds ({_names(said['not judged'])})."
    )
    for what, key in (("CPU time", "seconds"), ("Peak memory", "bytes")):
        costs = sorted(
            (found["step 0"][key] / max(found["pass" if key == "seconds" else "pass bytes"], 1e-9), found["model"])
            for found in judged if key == "seconds" or found["pass bytes"] > LARGE
        )  # fmt: skip
        if costs:
            beyond = "" if key == "seconds" else f", where a pass takes over {LARGE / 2**20:.0f} MB"
            lines.append(
                f"- {what} without the trial over that of a pass{beyond}: median {costs[len(costs) // 2][0]:.1f}, "
                f"most {costs[-1][0]:.1f} ({costs[-1][1]})."
            )
    return "\n".join(lines)


def _names(names: list[str]) -> str:
    return "; ".join(names) if names else "none"


def _one(name: str, trial: bool, seconds: float) -> dict[str, Any]:
    """What :func:`examine` finds, in a process of its own that begins with what is imported here."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_child, args=(sender, name, trial))
    process.start()
    sender.close()
    try:
        if receiver.poll(seconds):
            return dict(receiver.recv())
        return {"model": name, "error": f"not done after {seconds:.0f} s"}
    except EOFError:
        process.join()
        return {"model": name, "error": f"the process ended with code {process.exitcode}"}
    finally:
        process.kill()
        process.join()


def _child(sender: Connection, name: str, trial: bool) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # libraries talk
        os.dup2(silent, stream)
    try:
        sender.send(examine(name, trial))
    except Exception as problem:
        sender.send({"model": name, "error": f"{type(problem).__name__}: {problem}"})


def main() -> None:
    """The command."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("only", nargs="?", default="", help="parts of names, with commas")
    arguments.add_argument("--write", action="store_true", help=f"also put the table into docs/{PAGE.name}")
    arguments.add_argument("--no-trial", action="store_true", help="what step 0 alone says")
    arguments.add_argument("--seconds", type=float, default=600.0, help="a model may take")
    arguments.add_argument("--json", type=Path, help="keep what was found there, and do not run that again")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    truths = json.loads(OUTCOMES.read_text())["models"] if OUTCOMES.exists() else {}
    parts = [part.strip().lower() for part in given.only.split(",")]
    names = [name for name in {**models.ZOO, **models.BROKEN} if any(part in name.lower() for part in parts)]
    if not names:
        sys.exit(f"no model of the zoo has {given.only!r} in its name")
    for library in {name.split(":")[0] for name in names} & LIBRARIES.keys():
        importlib.import_module(LIBRARIES[library])
    known = json.loads(given.json.read_text()) if given.json and given.json.exists() else {}
    for name in names:
        if name not in known:
            known[name] = _one(name, not given.no_trial, given.seconds)
        if given.json:
            given.json.write_text(json.dumps(known, indent=1) + "\n")
        row = table_row(known[name], truths.get(name))
        print(f"{name}: training: {row['training']}; {row['verdict']}")
        print("    " + ", ".join(f"{key} {row[key]}" for key in COLUMNS[3:] if row[key]), flush=True)
    kept = [known[name] for name in names]
    print("\n" + summary(kept, truths))
    if given.write:
        rows = [table_row(found, truths.get(found["model"])) for found in kept]
        page = _put(PAGE.read_text(), "figures", summary(kept, truths))
        PAGE.write_text(_put(page, "table", markdown(rows)))
        print(f"written: {PAGE}")


def _put(page: str, mark: str, text: str) -> str:
    """A page with a text between two marks."""
    begin, end = f"<!-- {mark}: make zoo WRITE=1 -->", f"<!-- end of {mark} -->"
    return f"{page.split(begin)[0]}{begin}\n\n{text}\n\n{end}{page.split(end)[1]}"


if __name__ == "__main__":
    main()
