"""Training, as much of it as the papers' experiments need: one loop, its checkpoints, many small networks at once.

>>> done = train(net, Images.of(cifar, augment=PadCropFlip(4)), epochs=160, batch_size=128,
...              optimizer=SGD(momentum=0.9, weight_decay=5e-4), schedule=Steps(at=(0.5, 0.75)))     # doctest: +SKIP
>>> print(done)                                                                                     # doctest: +SKIP
"""

from epoch0.train.augmentation import CentreCrop, CropResizeFlip, PadCropFlip
from epoch0.train.device import chosen_device
from epoch0.train.distributed import joined
from epoch0.train.evaluation import Evaluation
from epoch0.train.lengths import TrajectoryLengths
from epoch0.train.loop import train
from epoch0.train.many import ManyTrained, train_many
from epoch0.train.optimizers import SGD, Adam, AdamW
from epoch0.train.record import Accuracy, Every, Training
from epoch0.train.schedules import Constant, Cosine, Steps, WarmUp
from epoch0.train.single_layer import train_one_layer
from epoch0.train.sources import Images, Source, Tensors
from epoch0.train.stacked import FreezeAt, Stacked
from epoch0.train.streaming import Folder, image_sources
from epoch0.train.trajectory_regularization import (
    TrajectoryRegularization,
    penalty,
    replace_batch_norm,
    scale_penalty,
)

__all__ = [
    "SGD", "Accuracy", "Adam", "AdamW", "CentreCrop", "Constant", "Cosine", "CropResizeFlip", "Evaluation",
    "Every", "Folder", "FreezeAt", "Images", "ManyTrained", "PadCropFlip", "Source", "Stacked", "Steps",
    "Tensors", "Training", "TrajectoryLengths", "TrajectoryRegularization", "WarmUp", "chosen_device",
    "image_sources", "joined", "penalty", "replace_batch_norm", "scale_penalty", "train", "train_many",
    "train_one_layer",
]  # fmt: skip
