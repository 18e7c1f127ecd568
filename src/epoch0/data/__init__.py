"""Data sets as numpy arrays: embedded digits, IDX, CIFAR binary, trees of images, npz; fetched and checked on request.

>>> digits = load("digits", split="train")
>>> digits.inputs("norm").shape                                 # (n, pixels), every row of Euclidean norm 1
(1437, 64)
"""

from epoch0.data.dataset import NORMALIZATIONS, DataSet, load_npz, read_idx, read_npz
from epoch0.data.image_files import ImageFiles, image_files
from epoch0.data.loading import Availability, available, fetch, load, path

__all__ = ["NORMALIZATIONS", "Availability", "DataSet", "ImageFiles", "available", "fetch", "image_files", "load"]
__all__ += ["load_npz", "path", "read_idx", "read_npz"]
