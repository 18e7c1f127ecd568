"""Settings of the documentation build."""

import re

from docutils import nodes
from sphinx import addnodes

import epoch0

project = "epoch0"
author = "The epoch0 authors"
copyright = "2026, the epoch0 authors"
release = epoch0.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.mathjax", "sphinx.ext.viewcode"]
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Source"]
napoleon_use_ivar = True
python_maximum_signature_line_length = 100

html_theme = "furo"
toc_object_entries = False  # 900 names on each page are a third of the build; the search and the index have them
html_title = "epoch0"
html_static_path: list[str] = []
exclude_patterns = ["_build", "jupyter_execute"]

# The how-tos are notebooks without outputs; the build runs them, and a cell that raises fails it.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # seconds for a cell
nb_output_stderr = "remove"  # progress


COLON = "\ue000"
"""Stands for a colon while napoleon reads, which takes what is before one in an attribute's words for its type."""


def held(app, what, name, obj, options, lines):
    """Keep the colons of what an attribute is from napoleon."""
    if what in ("attribute", "data", "property"):
        lines[:] = [line.replace(": ", f"{COLON} ") for line in lines]


def given_back(app, what, name, obj, options, lines):
    """Put the colons back."""
    lines[:] = [line.replace(COLON, ":") for line in lines]


def plain(app, what, name, obj, options, signature, returned):
    """A signature as a reader wants it: the type without the limits that are checked, or the words to choose from."""
    if signature:
        signature = re.sub(r"<(?:class|function) '?([\w.]+)'?>", r"\1", signature).replace("<factory>", "...")
        return without_limits(signature), returned and without_limits(returned)


def plain_attributes(app, doctree):
    """The same for the types of attributes, which are no signatures."""
    for node in doctree.findall(addnodes.desc_annotation):
        if "Annotated[" in node.astext():
            node[:] = [nodes.Text(without_limits(node.astext()))]


def without_limits(text: str) -> str:
    """``Annotated[float, Within(...)]`` as ``float``, ``Annotated[str, 'a', 'b']`` as ``'a' | 'b'``."""
    while (start := text.find("Annotated[")) >= 0:
        depth, parts = 1, [start := start + len("Annotated[")]
        for end in range(start, len(text)):
            depth += (text[end] in "[(") - (text[end] in ")]")
            if text[end] == "," and depth == 1:
                parts.append(end + 1)
            if depth == 0:
                break
        kind, *rest = (text[a:b].strip(" ,") for a, b in zip(parts, [*parts[1:], end], strict=True))
        words = " | ".join(rest) if all(word[:1] in "'\"" for word in rest) else kind
        text = re.sub(r"~?[\w.]*$", "", text[: start - len("Annotated[")]) + words + text[end + 1 :]
    return text


def setup(app):
    app.connect("autodoc-process-docstring", held, priority=400)
    app.connect("autodoc-process-docstring", given_back, priority=600)
    app.connect("autodoc-process-signature", plain)
    app.connect("doctree-read", plain_attributes)
