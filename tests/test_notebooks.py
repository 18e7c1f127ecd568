"""Results in a notebook: what they say, and the picture that they draw, in one element that holds both."""

import base64
import importlib
import inspect
import re
import sys
import types

import pytest
import torch

import epoch0 as e0
from epoch0.progress import ProgressBar, in_notebook
from epoch0.results import Shown

PUBLIC = (
    "activity",
    "initialization",
    "prune",
    "regions",
    "theory.growth",
    "theory.mean_field",
    "theory.norms",
    "train",
)


def picture(page: str) -> bytes:
    return base64.b64decode(re.search(r'src="data:image/png;base64,([^"]+)"', page)[1])


def test_every_result_with_words_of_its_own_shows_them() -> None:
    found = {
        kind
        for room in PUBLIC
        for kind in vars(importlib.import_module(f"epoch0.{room}")).values()
        if inspect.isclass(kind)
        and "__str__" in vars(kind)
        and not issubclass(kind, BaseException)
        and kind.__module__ != "epoch0.arguments"
    }
    assert len(found) > 20
    assert not {kind.__name__ for kind in found if not issubclass(kind, Shown)}


def test_results_that_draw_have_their_picture_inline() -> None:
    net = e0.networks.mlp([2, 8, 8, 2], biases=e0.Gaussian(0.5), seed=0)
    plane = e0.regions.on_plane(net, torch.tensor([[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]]))
    diagram = e0.theory.mean_field.phase_diagram("tanh", [0.5, 1.5], [0.1, 0.5])
    watch = e0.train.TrajectoryLengths(e0.Line(torch.zeros(2), torch.ones(2)))
    assert "img" not in watch._repr_html_()  # nothing was measured yet: there is nothing to draw
    watch(0, net)
    for shown in (plane, diagram, watch):
        page = shown._repr_html_()
        assert page.startswith("<pre>") and str(shown).splitlines()[0][:20] in page
        assert repr(shown) == str(shown)  # what a Python prompt shows, no arrays
        assert picture(page)[:8] == b"\x89PNG\r\n\x1a\n" and len(picture(page)) > 5_000


def test_words_are_escaped_and_numbers_and_masks_show_themselves() -> None:
    masks = e0.prune.Masks({"a<b>": torch.tensor([True, False])})
    critical = e0.prune.critical_sparsity({"a<b>": torch.tensor([0.9, 0.1])})
    assert masks._repr_html_() == "<pre>1 of 2 weights kept in 1 layer, sparsity 50.0000%</pre>"
    assert "'a&lt;b&gt;' vanishes" in critical._repr_html_().replace("&#x27;", "'")


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_gets_a_bar_as_a_widget_and_a_log_where_it_cannot_show_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], widgets: bool
) -> None:
    shown: list[str] = []

    class ZMQInteractiveShell:
        pass

    class Output:
        def clear_output(self, wait: bool) -> None:
            shown.append("cleared")

        def __enter__(self) -> None:
            pass

        def __exit__(self, *problem: object) -> None:
            pass

    shell, display, made = (
        types.ModuleType("IPython"),
        types.ModuleType("IPython.display"),
        types.ModuleType("ipywidgets"),
    )
    shell.get_ipython, shell.display, made.Output = ZMQInteractiveShell, display, Output
    display.display = lambda what, **more: shown.append(str(what.data if hasattr(what, "data") else what))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    if widgets:
        made.__spec__ = importlib.machinery.ModuleSpec("ipywidgets", None)
        monkeypatch.setitem(sys.modules, "ipywidgets", made)
    else:
        monkeypatch.setitem(sys.modules, "ipywidgets", None)
    # rich asks for the shell where its console is made
    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)
    assert in_notebook() is widgets
    bar = ProgressBar("walk", every=0.0)
    bar.begin(2)
    bar.show(1, "half", lambda: "1 of 2")
    assert bar.on_terminal is widgets
    bar.end()
    assert ("walk: 1 of 2" in capsys.readouterr().err) is not widgets and bool(shown) is widgets
