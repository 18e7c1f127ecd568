"""Take the verdicts of finished reproductions into src/epoch0/papers/verdicts.txt: ``python tools/verdicts.py FOLDER``.

A line has an id, a preset, a word and the claim, with tabs between them. All lines of an id and preset are replaced.
Afterwards ``epoch0 reproduce --statements --markdown > docs/statements.md`` brings the page up to date.
"""

import json
import sys
from pathlib import Path

FILE = Path(__file__).parent.parent / "src" / "epoch0" / "papers" / "verdicts.txt"


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
