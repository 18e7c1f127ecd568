"""The gallery of the documentation: ``python tools/gallery.py FOLDER``, where ``epoch0 reproduce --out`` has written.

Writes docs/gallery.md and small copies of the pictures (540 wide, 64 colours; greys stay grey) to docs/gallery/.
"""

import json
import re
import sys
from collections import Counter
from pathlib import Path

from PIL import Image

from epoch0.papers.catalogue import catalogue

DOCS = Path(__file__).parent.parent / "docs"


def gallery(folder: Path) -> str:
    """A page of Markdown: the pictures of a folder of results with headings and verdicts, in the papers' order."""
    parts = ["# Gallery", "Made by `python tools/gallery.py FOLDER` of what was reproduced into a folder."]
    for id in catalogue():
        if (path := folder / f"{id}.json").exists():
            told = json.loads(path.read_text("utf-8"))
            counts = Counter(claim["verdict"] for claim in told["claims"])
            parts += [f"## {id}: {told['title']}", f"{told['preset']}: {told['about']}", f"paper: {told['paper']}"]
            parts += [f"![{id}]({id}.png)", f"**{', '.join(f'{count} {word}' for word, count in counts.items())}**"]
    return "\n\n".join(parts) + "\n"


def make(folder: Path, docs: Path) -> None:
    """The page, and its pictures."""
    page = gallery(folder)
    if not (names := re.findall(r"\]\((.*?)\.png\)", page)):
        sys.exit(f"{str(folder)!r} holds nothing that was reproduced; the gallery stays as it is.")
    (docs / "gallery").mkdir(exist_ok=True)
    for name in names:
        picture = Image.open(folder / f"{name}.png").convert("RGB")
        picture.thumbnail((540, 540), Image.Resampling.LANCZOS)
        picture.quantize(64, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(
            docs / "gallery" / f"{name.replace('/', '-')}.png", optimize=True
        )
        page = page.replace(f"]({name}.png)", f"](gallery/{name.replace('/', '-')}.png)")
    (docs / "gallery.md").write_text(page)


if __name__ == "__main__":
    make(Path(sys.argv[1]), DOCS)
