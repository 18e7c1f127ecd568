"""Print what the house measures: lines and files of each room, who imports whom, circles. ``python tools/house.py``.

All lines of ``src/epoch0/**/*.py`` count. Imports inside functions and under TYPE_CHECKING count like any other.
"""

import ast
import doctest
import functools
import os
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "epoch0"
LIMITS = {
    "lines": 42_000, "files": 250, "lines of papers": 9_000, "lines of train": 2_500,
    "lines of prune and regions": 9_000, "files of prune and regions": 50, "modules with one user": 60,
    "private names from another room": 0, "circles": 0, "lines of the forecast": 250,
    "fmt: skip but at tables of numbers": 0, "files for a new activation": 1, "files for a new score": 1,
    "files for a new figure": 1, "seconds of make test": 240, "examples neither run nor marked": 0,
}  # fmt: skip
FORECAST = ("papers/estimate.py", "experiments/cost.py")
SECONDS = ROOT / ".pytest_cache" / "seconds"  # which `make test` writes


@functools.cache
def modules(source: Path = SOURCE) -> dict[str, ast.Module]:
    """Dotted name -> syntax tree of every module but the top package, whose lazy table of names looks up on purpose."""
    trees = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "epoch0":
            trees[name] = ast.parse(path.read_text())
    return trees


def room(name: str) -> str:
    """The room of a module."""
    return name.split(".")[1]


def imports(name: str, nodes: "list[ast.AST]", known: set[str]) -> set[str]:
    """Modules of ours that these statements of a module import."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import; the house uses absolute ones"
            base = node.module or ""
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return {module for module in found if module in known and module != name}


def graph(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Module -> the modules it imports, wherever in it."""
    return {name: imports(name, list(ast.walk(tree)), set(trees)) for name, tree in trees.items()}


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which leads to every other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in edges:
        if name not in index:
            visit(name)
    return found


def private(trees: dict[str, ast.Module]) -> list[str]:
    """Imports of a private module of another room, or of a private name of any other room's module."""
    found = []
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("epoch0."):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                if room(node.module) != room(name) and any(part.startswith("_") for part in names):
                    found.append(f"{name}: {node.module} {[alias.name for alias in node.names]}")
    return found


def single_users(edges: dict[str, set[str]]) -> list[str]:
    """Modules that exactly one other imports; packages and what runs as a command are left out."""
    users = Counter(other for found in edges.values() for other in found)
    packages = {name.rpartition(".")[0] for name in edges}
    return sorted(name for name, count in users.items() if count == 1 and name not in packages)


def unformatted(text: str) -> int:
    """How often the formatter is switched off but at a table of numbers: a display all of whose values are numbers."""

    def of_numbers(table: ast.AST | None) -> bool:
        values = table.values if isinstance(table, ast.Dict) else getattr(table, "elts", [])
        leaves = [leaf for value in values for leaf in ast.walk(value) if isinstance(leaf, ast.Constant)]
        return bool(leaves) and all(isinstance(leaf.value, int | float) for leaf in leaves)

    marked = {number for number, line in enumerate(text.splitlines(), 1) if re.search("# fmt: (skip|off)", line)}
    nodes = ast.walk(ast.parse(text)) if marked else ()
    set_to = [node for node in nodes if isinstance(node, ast.Assign | ast.AnnAssign)]
    return len(marked - {node.end_lineno for node in set_to if of_numbers(node.value)})


def named(tree: ast.Module) -> set[str]:
    """Every name, every text and every module imported from in a module, but what only type checkers read."""
    found: set[str] = set()
    left: list[ast.AST] = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        left += ast.iter_child_nodes(node)
        texts = [getattr(node, field, None) for field in ("id", "attr", "name", "module", "value")]
        found |= {text for text in texts if isinstance(text, str)}
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def entries(trees: dict[str, ast.Module]) -> dict[str, list[set[str]]]:
    """What was added before, of each kind: the names of each."""
    found: dict[str, list[set[str]]] = {"activation": [], "score": [], "figure": []}
    for module, tree in trees.items():
        if any(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ARTIFACTS" for node in tree.body):
            ids = (text for text in named(tree) if re.fullmatch(r"[a-z-]+/[a-z]+\d+[a-z]*", text))
            found["figure"] += [{id, module} for id in ids]
        for node in tree.body:
            for call in getattr(node, "decorator_list", []):
                kind = {"_known": "activation", "score": "score"}.get(ast.unparse(call).partition("(")[0])
                if kind and isinstance(node, ast.FunctionDef):
                    texts = {arg.value for arg in call.args if isinstance(arg, ast.Constant) and arg.value}
                    found[kind].append({node.name, *texts})
    return found


def to_touch(trees: dict[str, ast.Module]) -> dict[str, int]:
    """Files that a new activation, score or figure takes: as many as name that of ours which the fewest name. What
    every one of a kind needs, such as a line in a table elsewhere, is in that number; what is said of some is not.
    """
    texts = [named(tree) for tree in trees.values()]
    return {
        kind: min(sum(bool(names & text) for text in texts) for names in known)
        for kind, known in entries(trees).items()
    }


@functools.cache
def examples() -> Counter[str]:
    """Examples in docstrings: run by tests/test_examples.py, marked as varying, or neither."""
    late = re.search(r"^LATER = (.*)$", (ROOT / "tests" / "test_examples.py").read_text(), re.MULTILINE)
    assert late, "tests/test_examples.py names the rooms that it leaves out"
    found: Counter[str] = Counter()
    for name, tree in {"epoch0.": ast.parse((SOURCE / "__init__.py").read_text()), **modules()}.items():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                continue
            for example in doctest.DocTestParser().get_examples(ast.get_docstring(node) or ""):
                away = room(name) in ast.literal_eval(late[1])
                found["varying" if doctest.SKIP in example.options else "neither" if away else "run"] += 1
    return found


def measured() -> dict[str, int]:
    """Every figure of LIMITS, less the seconds where nothing has measured them."""
    lines = {path.relative_to(SOURCE): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    rooms = ("papers", "train", "prune", "regions")
    of = {name: {p: n for p, n in lines.items() if p.parts[0] == name} for name in rooms}
    trees = modules()
    edges = graph(trees)
    both = {**of["prune"], **of["regions"]}
    return {
        "lines": sum(lines.values()), "files": len(lines), "lines of papers": sum(of["papers"].values()),
        "lines of train": sum(of["train"].values()), "lines of prune and regions": sum(both.values()),
        "files of prune and regions": len(both), "modules with one user": len(single_users(edges)),
        "private names from another room": len(private(trees)), "circles": len(circles(edges)),
        "lines of the forecast": sum(n for p, n in lines.items() if str(p) in FORECAST),
        "fmt: skip but at tables of numbers": sum(unformatted(path.read_text()) for path in SOURCE.rglob("*.py")),
        **{f"files for a new {kind}": count for kind, count in to_touch(trees).items()},
        "examples neither run nor marked": examples()["neither"],
        **({"seconds of make test": int(SECONDS.read_text())} if SECONDS.exists() else {}),
    }  # fmt: skip


def main() -> None:
    """Print the table, then each room."""
    found = measured()
    for name, limit in LIMITS.items():
        value = f"{found[name]:>8,}" if name in found else " not run"
        print(f"{name:34}{value}   at most {limit:,}{'   <-' if found.get(name, 0) > limit else ''}")
    print("examples in docstrings:", ", ".join(f"{count} {word}" for word, count in examples().most_common()))
    rooms: dict[str, Counter[str]] = {}
    for path in SOURCE.rglob("*.py"):
        count = rooms.setdefault(path.relative_to(SOURCE).parts[0].removesuffix(".py"), Counter())
        count.update(lines=len(path.read_text().splitlines()), files=1)
    print()
    for name, count in sorted(rooms.items(), key=lambda pair: -pair[1]["lines"]):
        print(f"{name:20}{count['lines']:>8,} lines {count['files']:>5} files")
    if "-v" in sys.argv:
        edges = graph(modules())
        print("\ncircles:", *circles(edges), sep="\n  ")
        print("\nmodules with one user:", *single_users(edges), sep="\n  ")


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # head has seen enough; what is left must not be written on the way out either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
