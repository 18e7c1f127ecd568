"""The gallery of the documentation: ``python tools/gallery.py FOLDER``, where ``epoch0 reproduce --out`` has written.

Writes docs/gallery.md and small copies of the pictures (540 wide, 32 colours) to docs/gallery/.
"""

import re
import sys
from pathlib import Path

from PIL import Image

from epoch0.papers.reproduce import gallery

DOCS = Path(__file__).parent.parent / "docs"


def make(folder: Path, docs: Path) -> None:
    """The page, and its pictures."""
    page = gallery(folder)
    if not (names := re.findall(r"\]\((.*?)\.png\)", page)):
        sys.exit(f"{str(folder)!r} holds nothing that was reproduced; the gallery stays as it is.")
    (docs / "gallery").mkdir(exist_ok=True)
    for name in names:
        picture = Image.open(folder / f"{name}.png").convert("RGB")
        picture.thumbnail((540, 540), Image.Resampling.LANCZOS)
        picture.quantize(32, Image.Quantize.MAXCOVERAGE).save(
            docs / "gallery" / f"{name.replace('/', '-')}.png", optimize=True
        )
        page = page.replace(f"]({name}.png)", f"](gallery/{name.replace('/', '-')}.png)")
    (docs / "gallery.md").write_text(page)


if __name__ == "__main__":
    make(Path(sys.argv[1]), DOCS)
