"""Small trees of image files in the layouts of Tiny ImageNet and ImageNet, written by the tests that read them back."""

from pathlib import Path

import numpy as np
from PIL import Image

WNIDS = [f"n{number:08d}" for number in (2124075, 1443537, 4067472, 1629819)]  # in the order of wnids.txt: none


def picture(seed: int, width: int = 64, height: int = 64, mode: str = "RGB") -> Image.Image:
    """Smooth colours, so that JPEG changes them little, different for each seed."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def save(path: Path, image: Image.Image) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, "JPEG", quality=95)
    return path


def write_tiny(root: Path, train: int = 3, val: int = 10) -> list[tuple[str, str]]:
    """`train` images a class and `val` for validation; returns file and class of those, in numerical order."""
    for c, wnid in enumerate(WNIDS):
        for i in range(train):
            mode = "L" if c == i == 1 else "RGB"  # some of the official ones are grayscale
            save(root / f"train/{wnid}/images/{wnid}_{i}.JPEG", picture(100 * c + i, mode=mode))
        (root / f"train/{wnid}/{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t63\t63\n")
    (root / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    stated = [(f"val_{i}.JPEG", WNIDS[i * 7 % len(WNIDS)]) for i in range(val)]
    for i, (file, _) in enumerate(stated):
        save(root / f"val/images/{file}", picture(1000 + i))
    lines = [f"{file}\t{wnid}\t0\t32\t44\t62\n" for file, wnid in reversed(stated)]
    (root / "val/val_annotations.txt").write_text("".join(lines))
    return stated


def write_imagenet(root: Path, classes: int = 1000, train: int = 1, val: int = 1) -> None:
    """Folders of one very small image each; sizes differ."""
    small = {size: picture(size, *size_of(size)) for size in range(5)}
    for c in range(classes):
        for part, count in (("train", train), ("val", val)):
            for i in range(count):
                save(root / f"{part}/n{c:08d}/{part}_{c}_{i}.JPEG", small[(c + i) % 5])


def size_of(kind: int) -> tuple[int, int]:
    return 6 + 3 * kind, 12 - kind
