"""Print what the house measures: lines and files of each room, who imports whom, circles. ``python tools/house.py``.

All lines of ``src/epoch0/**/*.py`` count. Imports inside functions and under TYPE_CHECKING count like any other.
"""

import ast
import functools
import os
import re
import sys
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "epoch0"
LIMITS = {
    "lines": 42_000, "files": 250, "lines of papers": 9_000, "lines of train": 2_500,
    "lines of prune and regions": 9_000, "files of prune and regions": 50, "modules with one user": 60,
    "private names from another room": 0, "circles": 0, "lines of the forecast": 250,
    "fmt: skip but at tables of numbers": 0,
}  # fmt: skip
FORECAST = ("papers/estimate.py", "experiments/cost.py")


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
    set_to = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assign | ast.AnnAssign)]
    return len(marked - {node.end_lineno for node in set_to if of_numbers(node.value)})


def measured() -> dict[str, int]:
    """Every figure of LIMITS."""
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
    }  # fmt: skip


def main() -> None:
    """Print the table, then each room."""
    for name, value in measured().items():
        print(f"{name:34}{value:>8,}   at most {LIMITS[name]:,}{'' if value <= LIMITS[name] else '   <-'}")
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
