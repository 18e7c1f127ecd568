"""How good a network is on a whole set: mean loss and accuracy, counted exactly, also for stacks of networks."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.arguments import Count, checked, refuse
from epoch0.errors import InputError, first_line, reworded
from epoch0.tracing.guard import refuse_closed, unchanged
from epoch0.train.data import CropResizeFlip, Pair, batches, check_classes
from epoch0.train.device import Precision, autocast
from epoch0.train.stacked import Stacked, loss_of_each

Loss = Callable[[Tensor, Tensor], Tensor]


@checked
@dataclass(frozen=True)
class Accuracy:
    """Share of examples whose largest output is the right one; per network for a stack of networks.

    >>> Accuracy(torch.eye(2), torch.tensor([0, 0]))(nn.Identity())
    {'accuracy': 0.5}
    """

    inputs: Tensor
    targets: Tensor
    name: str = "accuracy"  #: what to call it in the row
    batch_size: Count = 1000  #: examples of a forward pass

    def __post_init__(self) -> None:
        object.__setattr__(self, "_data", Pair(self.inputs, self.targets))  # refuses what does not go together

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """Evaluate, in the mode the model is in; outputs have shape (..., batch, classes), buffers stay."""
        return {self.name: _means(model, vars(self)["_data"], self.batch_size)["accuracy"]}


@checked
@dataclass(frozen=True, eq=False)
class Evaluation:
    """Mean loss and share of examples that are classified right, in eval mode, as ``evaluate=`` of ``train``.

    >>> test = Evaluation((torch.eye(2), torch.tensor([0, 0])))             # inputs (2, 2), targets (2,)
    >>> test(nn.Identity())["test_accuracy"]
    0.5
    """

    data: Any  #: the examples, inputs and targets, or what :func:`epoch0.train.image_sources` gives
    batch_size: Count = 1000  #: examples a forward pass; changes nothing but rounding
    name: str = "test"  #: of the split; begins the names of the metrics
    loss: Loss | None = None  #: ``loss(outputs, targets)``, the mean over a batch; None: the cross-entropy
    #: of the products, as for ``train``; outputs become float32 before they are compared
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        if isinstance(self.data, tuple) and len(self.data) == 2:
            object.__setattr__(self, "data", Pair(*self.data))
        if not (hasattr(self.data, "batch") and isinstance(getattr(self.data, "targets", None), Tensor)):
            raise refuse("data", self.data, "the pair of inputs and targets, or what train.image_sources gives")
        view = getattr(self.data, "view", None)
        changed = view if isinstance(view, CropResizeFlip) else getattr(self.data, "augment", None)
        if changed is not None:
            raise InputError(f"an evaluation is of the examples as they are, and these have {changed}; leave it out.")
        if not self.name:
            raise InputError("name='' would give a metric the name of the training loss; call the split something.")

    def __call__(self, model: nn.Module) -> dict[str, Any]:
        """``test_loss``, for class labels ``test_accuracy`` in [0, 1].

        Lists with one number a network for a stack. Modes and buffers of the model stay as they are.
        """
        device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
        if self.data.targets.device != device:
            object.__setattr__(self, "data", self.data.to(device))
        own = self.loss or F.cross_entropy
        loss = loss_of_each(own) if isinstance(model, Stacked) else own
        means = _means(model, self.data, self.batch_size, loss, self.precision)
        return {f"{self.name}_{name}": mean for name, mean in means.items()}


@torch.no_grad()
def _means(
    model: nn.Module, data: Any, size: int, loss: Loss | None = None, precision: Precision = "float32"
) -> dict[str, Any]:
    """Mean loss, if one is given, in eval mode, and for class labels the share that is right; lists for a stack."""
    targets, sums = data.targets, dict[str, Any]()
    device = next((parameter.device for parameter in model.parameters()), targets.device)
    by_class = loss is None or (not targets.is_floating_point() and targets.dim() == 1)
    refuse_closed(model, run_only=True)
    text = f"model and loss cannot take these {len(targets)} examples"
    explained = reworded(lambda problem: InputError(f"{text}: {first_line(problem)[:300]}"), torch.OutOfMemoryError)
    with contextlib.ExitStack() as after, unchanged(model), explained:
        for module in model.modules():
            if isinstance(module, torch.jit.ScriptModule):  # its state is not in Python
                after.callback(setattr, module, "training", module.training)
                for buffer in module.buffers(recurse=False):
                    after.callback(buffer.copy_, buffer.clone())
        if loss is not None:
            model.eval()
        for x, y in batches(data, ((part, 0) for part in torch.arange(len(targets)).split(size))):
            x, y = x.to(device), y.to(device)
            with autocast(device, precision):
                outputs = model(x)
            outputs = outputs.float() if outputs.dtype in (torch.bfloat16, torch.float16) else outputs
            if loss is not None and by_class and not sums:
                check_classes(targets, outputs.shape[-1])
            if loss is not None:
                sums["loss"] = sums.get("loss", 0.0) + loss(outputs, y).double() * len(y)
            if by_class:
                sums["accuracy"] = sums.get("accuracy", 0) + (outputs.argmax(-1) == y).sum(-1)
    return {name: (torch.as_tensor(total).double() / len(targets)).tolist() for name, total in sums.items()}
