"""Training, as much of it as the papers' experiments need: one loop, its checkpoints, many small networks at once.

>>> sgd = functools.partial(torch.optim.SGD, momentum=0.9, weight_decay=5e-4)
>>> training, testing = image_sources("digits", flatten=True)
>>> done = train(net, training, epochs=5, batch_size=64, learning_rate=0.1, optimizer=sgd,
...              schedule=torch.optim.lr_scheduler.CosineAnnealingLR, evaluate=Evaluation(testing))
>>> done.steps, done.history[-1]["test_accuracy"] > 0.9
(115, True)
"""

from epoch0.train.data import CentreCrop, CropResizeFlip, Folder, Images, PadCropFlip, image_sources
from epoch0.train.device import chosen_device, joined
from epoch0.train.evaluation import Accuracy, Evaluation, Every, Training
from epoch0.train.loop import train
from epoch0.train.raghu import TrajectoryLengths, TrajectoryRegularization, penalty, replace_batch_norm, train_one_layer
from epoch0.train.stacked import FreezeAt, Stacked

__all__ = ["Accuracy", "CentreCrop", "CropResizeFlip", "Evaluation", "Every", "Folder", "FreezeAt", "Images"]
__all__ += ["PadCropFlip", "Stacked", "Training", "TrajectoryLengths", "TrajectoryRegularization", "chosen_device"]
__all__ += ["image_sources", "joined", "penalty", "replace_batch_norm", "train", "train_one_layer"]
