"""The house: imports point down its floors, there is no cycle, and nothing heavy is imported before it is needed."""

import ast
import doctest
import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))
import house

FLOORS: list[set[str]] = [
    {"arguments", "errors", "files", "interrupts", "progress", "results", "seeds", "special"},
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
    {"models", "integrations", "lightning"},
    {"demo"},
    {"cli", "__main__"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}


def _at_import_time(tree: ast.AST):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _at_import_time(node)


def floor(name: str) -> int:
    return FLOOR[house.room(name)]


def test_every_room_has_a_floor() -> None:
    assert {name.split(".")[1] for name in house.modules()} <= FLOOR.keys()


def test_imports_point_down() -> None:
    """Those inside functions and under TYPE_CHECKING too."""
    up = [
        f"{name} imports {other}"
        for name, found in house.graph(house.modules()).items() for other in found if floor(other) > floor(name)
    ]  # fmt: skip
    assert not up


def test_no_circles() -> None:
    assert house.circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert not house.circles(house.graph(house.modules()))


def test_what_other_rooms_need_is_public() -> None:
    """No private module of another room, and no private name of any other module."""
    assert not house.private(house.modules())


def test_what_is_small_stays_small() -> None:
    """Figures of the house that have met their limit."""
    measured = house.measured()
    met = {"lines of train", "files of prune and regions", "lines of the forecast"}
    met |= {"fmt: skip but at tables of numbers", *(name for name in measured if name.startswith("files for a new"))}
    assert all(measured[name] <= house.LIMITS[name] for name in met)


def test_the_formatter_is_off_at_tables_of_numbers_only() -> None:
    assert house.unformatted("A = {1: 2.5, 'b': 3}  # fmt: skip\nB: tuple = (1, [2, -3])  # fmt: skip\n") == 0
    assert house.unformatted("A = {1: 'one', 2: 3}  # fmt: skip\nf(1, 2)  # fmt: skip\n# fmt: off\n") == 3


def test_what_every_entry_of_a_kind_needs_is_counted() -> None:
    """A line in a table elsewhere, a module that the package imports; not what is said of one of them."""
    texts = {
        "epoch0.activations._named": "@_known('ReLU')\ndef relu(): ...\n@_known('Mish')\ndef mish(): ...",
        "epoch0.prune.scores": "if TYPE_CHECKING:\n    from epoch0.prune.scores.scores import snip",
        "epoch0.prune.scores.scores": "@score()\ndef snip(): ...\n@score(rounds=3)\ndef flow(): ...",
        "epoch0.prune": "TABLE = [snip, flow]",
        "epoch0.papers.a": "ARTIFACTS = [Artifact('one-two/fig1')]",
        "epoch0.papers": "from epoch0.papers import a",
        "epoch0.demo": "relu, 'one-two/fig1'",
    }
    counts = house.to_touch({name: ast.parse(text) for name, text in texts.items()})
    assert counts == {"activation": 1, "score": 2, "figure": 3}


def test_examples_are_counted() -> None:
    """As many as tests/test_examples.py finds; what the table prints holds where nothing has timed the tests, too."""
    import test_examples

    found = doctest.DocTestFinder(exclude_empty=True)
    modules = [module for room in test_examples.ROOMS for module in test_examples.modules(room)]
    shown = [e for module in modules for test in found.find(module, module.__name__) for e in test.examples]
    counts = house.examples()
    assert counts["run"] == sum(doctest.SKIP not in example.options for example in shown) > 300
    assert counts["varying"] >= len(shown) - counts["run"]


def test_the_table_says_what_was_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "measured", lambda: {"lines": house.LIMITS["lines"] + 1, "files": 3})
    house.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("<-") and lines[1].endswith("250")
    assert any("make test" in line and "not run" in line for line in lines)


def test_theory_and_ground_do_not_load_torch_on_import() -> None:
    for name, tree in house.modules().items():
        if name.startswith(("epoch0.theory", "epoch0.distributions", "epoch0.activations", "epoch0.data")):
            at_import = {
                alias.name.split(".")[0]
                for node in _at_import_time(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module or "")])
            }
            assert "torch" not in at_import, f"{name} imports torch"


def test_first_line_says_what_the_module_is_for() -> None:
    for name, tree in house.modules().items():
        text = ast.get_docstring(tree)
        assert text and len(text.splitlines()[0]) > 20, name


STAGES = """
import json, sys
found = {}
def stage(name):
    found[name] = list(sys.modules)

import epoch0 as e0
stage("import")

import random
state = random.getstate()  # some libraries draw while they are imported
e0.trajectory_length, e0.gain, e0.Line, e0.networks.mlp, e0.theory.growth, e0.data.load, e0.checkup, e0.train
stage("names")

from epoch0.papers.catalogue import catalogue
catalogue()
stage("catalogue")

import torch
net, x = e0.networks.mlp([4, 8, 8, 2]), torch.randn(8, 4)
assert e0.checkup(net, x, trial=False, remedies=False).layers and random.getstate() == state
stage("checkup")
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """What is loaded after each stage of one fresh process."""
    done = subprocess.run([sys.executable, "-c", STAGES], capture_output=True, text=True, check=True)
    return {name: set(modules) for name, modules in json.loads(done.stdout).items()}


def test_import_is_light(loaded: dict[str, set[str]]) -> None:
    assert "epoch0" in loaded["import"]
    assert not loaded["import"] & {"torch", "matplotlib", "dask", "distributed", "scipy.stats", "pandas"}


def test_public_names_do_not_load_faces(loaded: dict[str, set[str]]) -> None:
    assert "epoch0.diagnosis.checkup" in loaded["names"]
    assert not loaded["names"] & {"matplotlib", "dask", "distributed", "scipy.stats", "pandas", "typer", "pooch"}


def test_the_catalogue_is_listed_without_workers_or_pictures(loaded: dict[str, set[str]]) -> None:
    assert "epoch0.papers.catalogue" in loaded["catalogue"]
    assert not loaded["catalogue"] & {"matplotlib", "distributed", "dask", "pandas"}


def test_a_checkup_draws_nothing_until_asked(loaded: dict[str, set[str]]) -> None:
    """One with its regions on a plane, of which the page has a picture."""
    assert "matplotlib" not in loaded["checkup"]


def test_a_figure_is_planned_with_little_beside_torch() -> None:
    """What ``reproduce`` loads before the first trial; scipy alone would be a fifth of a second."""
    code = (
        "import sys, torch; before = set(sys.modules)\n"
        "import epoch0 as e0; e0.reproduce\n"
        "from epoch0.papers.reproduce import planned\n"
        "assert planned(['hayou/fig3a'], 'quick', None)[0].trials\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    assert not {name.split(".")[0] for name in loaded} & {"scipy", "dask", "distributed", "matplotlib", "pandas"}
    assert "epoch0.papers.hayou.protocol" in loaded and len(loaded) <= 225, len(loaded)


def test_help_does_not_load_torch() -> None:
    code = (
        "import contextlib, io, sys\n"
        "sys.argv = ['epoch0', '--help']\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        "    from epoch0.cli import main\n"
        "    main()\n"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "epoch0.cli" in loaded
    assert not loaded & {"torch", "matplotlib", "dask", "distributed", "scipy", "numpy", "jaxtyping"}


def test_every_public_name_is_there() -> None:
    import epoch0 as e0

    for name in e0.__all__:
        assert getattr(e0, name) is not None
    assert callable(e0.checkup) and callable(e0.reproduce) and callable(e0.gain)
    with pytest.raises(AttributeError, match="nope"):
        e0.nope  # noqa: B018
