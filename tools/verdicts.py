"""Take the verdicts of finished reproductions into src/epoch0/papers/verdicts.txt: ``python tools/verdicts.py FOLDER``.

A line has an id, a preset, a word and the claim, with tabs between them. All lines of an id and preset are replaced.
Then docs/statements.md is written anew.
"""

import json
import sys
from pathlib import Path

from epoch0.papers.catalogue import statements
from epoch0.papers.sweep import AUTHORS
from epoch0.results import markdown

ROOT = Path(__file__).parent.parent
FILE = ROOT / "src" / "epoch0" / "papers" / "verdicts.txt"


def page() -> str:
    """The page of all statements, in Markdown."""
    lines = [
        "# Every statement of the five papers\n",
        "Each theorem, proposition, lemma, corollary, figure and table has a row, as `reproduce --statements` shows.",
        "`epoch0 reproduce ID` runs it. The columns quick preset and paper preset count the words of its claims",
        "([](claims.md)) in the two presets; where a statement has no id of its own, only of those claims that are",
        "about it. A check tests the software and is true for every network. The last column has what is wrong in the",
        "paper, what failed, and what of the statement was not measured.",
    ]
    for paper, authors in AUTHORS.items():
        rows = [one.row() for one in statements() if one.paper == paper]
        lines += [f"\n## {authors}: {paper}\n", markdown([list(rows[0]), *(list(row.values()) for row in rows)])]
    return "\n".join(lines) + "\n"


def taken(lines: list[str], told: dict) -> list[str]:
    """The lines with those of one reproduction in the place of its former ones, or behind the others of its paper."""
    start = f"{told['id']}\t{told['preset']}\t"
    own = [f"{start}{one['verdict']}\t{one['text']}" for one in told["claims"]]
    own += [f"{start}check {one['verdict']}\t{one['text']}" for one in told["checks"]]
    before = [place for place, line in enumerate(lines) if line.startswith(start)]
    place = before[0] if before else len(lines)
    return [*lines[:place], *own, *(line for line in lines[place:] if not line.startswith(start))]


if __name__ == "__main__":
    lines = FILE.read_text().splitlines()
    for path in sorted(path for folder in sys.argv[1:] for path in Path(folder).glob("*/*.json")):
        lines = taken(lines, json.loads(path.read_text()))
    FILE.write_text("\n".join(lines) + "\n")
    (ROOT / "docs" / "statements.md").write_text(page())
