"""Settings of the documentation build."""

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
