"""The house: imports point down its floors, there is no cycle, and nothing heavy is imported before it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "epoch0"
FLOORS: list[set[str]] = [
    {"columns", "errors", "files", "heap", "meter", "seeds"},
    {"distributions", "activations", "curves", "data", "plots"},
    {"theory"},
    {"networks"},
    {"tracing"},
    {"measure"},
    {"regions"},
    {"activity"},
    {"initialization"},
    {"prune"},
    {"train"},
    {"experiments"},
    {"papers", "diagnosis"},
    {"models"},
    {"demo"},
    {"cli", "__main__"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def modules() -> dict[str, ast.Module]:
    """Dotted name -> syntax tree of every module but the top package, whose lazy table of names looks up on purpose."""
    trees = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "epoch0":
            trees[name] = ast.parse(path.read_text())
    return trees


def imports(name: str, tree: ast.Module, known: set[str], *, deep: bool) -> set[str]:
    """Modules of ours that this one imports; ``deep`` counts the imports inside functions too."""
    nodes = ast.walk(tree) if deep else _at_import_time(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: relative import; the house uses absolute ones"
            base = node.module or ""
            found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return {module for module in found if module in known and module != name}


def _at_import_time(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _at_import_time(node)


TREES = modules()


def floor(name: str) -> int:
    return FLOOR[name.split(".")[1]]


def test_every_room_has_a_floor() -> None:
    assert {name.split(".")[1] for name in TREES} <= FLOOR.keys()


@pytest.mark.parametrize("name", TREES)
def test_imports_point_down(name: str) -> None:
    up = [other for other in imports(name, TREES[name], set(TREES), deep=True) if floor(other) > floor(name)]
    assert not up, f"{name} imports {up} from a floor above"


def test_no_cycles() -> None:
    graph = {name: imports(name, tree, set(TREES), deep=False) for name, tree in TREES.items()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"import cycle: {' -> '.join((*path, name))}"
        if name not in done:
            for other in graph[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_what_other_rooms_need_is_public() -> None:
    """No private module of another room, and no private name of any other module."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("epoch0."):
                room, own = node.module.split(".")[1], name.split(".")[1]
                private = [part for part in node.module.split(".") if part.startswith("_")]
                private += [alias.name for alias in node.names if alias.name.startswith("_")]
                assert room == own or not private, f"{name} imports {node.module}: {private}"


def test_theory_and_ground_do_not_load_torch_on_import() -> None:
    for name, tree in TREES.items():
        if name.startswith(("epoch0.theory", "epoch0.distributions", "epoch0.activations", "epoch0.data")):
            at_import = {
                alias.name.split(".")[0]
                for node in _at_import_time(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
            }
            assert "torch" not in at_import, f"{name} imports torch"


@pytest.mark.parametrize("name", TREES)
def test_first_line_says_what_the_module_is_for(name: str) -> None:
    text = ast.get_docstring(TREES[name])
    assert text and len(text.splitlines()[0]) > 20


def loaded_after(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(result.stdout.split())


def test_import_is_light() -> None:
    loaded = loaded_after("import epoch0")
    assert not loaded & {"torch", "matplotlib", "dask", "distributed", "scipy.stats", "pandas"}


def test_public_names_do_not_load_faces() -> None:
    loaded = loaded_after(
        "import epoch0 as e0\n"
        "e0.trajectory_length, e0.gain, e0.Line, e0.networks.mlp, e0.theory.growth, e0.data.load, e0.checkup, e0.train"
    )
    assert not loaded & {"matplotlib", "dask", "distributed", "scipy.stats", "pandas", "typer", "pooch"}


def test_help_does_not_load_torch() -> None:
    loaded = loaded_after(
        "sys.argv = ['epoch0', '--help']\n"
        "import io, contextlib\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    from epoch0.cli import main\n"
        "    main()"
    )
    assert "epoch0.cli" in loaded
    assert not loaded & {"torch", "matplotlib", "dask", "distributed", "scipy", "numpy", "jaxtyping"}


def test_every_public_name_is_there() -> None:
    import epoch0 as e0

    for name in e0.__all__:
        assert getattr(e0, name) is not None
    assert callable(e0.checkup) and callable(e0.reproduce) and callable(e0.gain)
    with pytest.raises(AttributeError, match="nope"):
        e0.nope  # noqa: B018
