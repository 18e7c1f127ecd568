"""``python -m epoch0`` is the ``epoch0`` command."""

from epoch0.cli import main

main()
