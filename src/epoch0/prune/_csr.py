"""Layers that hold only the weights that are kept: compressed sparse rows with 32-bit indices (THEORY section 4)."""

import functools
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CsrMatrix(nn.Module):
    """A constant sparse matrix: 4 bytes for the column of each entry beside its value, and 4 a row.

    >>> CsrMatrix(torch.tensor([[0.0, 2.0], [0.0, 0.0]])).values                # (rows, columns) -> (entries,)
    tensor([2.])

    Its entries get no gradient; what it is multiplied by does. They are buffers: it moves, copies and saves with a
    module.

    Args:
        weight: a matrix, of which the entries that are not zero are stored.
    """

    row_starts: Tensor
    columns: Tensor
    values: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.rows, self.width = weight.shape
        kept = weight.detach().nonzero()
        counts = torch.bincount(kept[:, 0], minlength=self.rows)
        self.register_buffer("row_starts", F.pad(counts.cumsum(0), (1, 0)).int())
        self.register_buffer("columns", kept[:, 1].int())
        self.register_buffer("values", weight.detach()[kept[:, 0], kept[:, 1]].clone())

    def forward(self, x: Tensor) -> Tensor:
        """The product with a vector of shape (columns,) or a matrix of shape (columns, n)."""
        quiet()
        # not by name: each look-up through the module costs a microsecond
        starts, columns, values = (self._buffers[name] for name in ("row_starts", "columns", "values"))
        assert starts is not None and columns is not None and values is not None
        matrix = torch.sparse_csr_tensor(starts, columns, values, size=(self.rows, self.width), check_invariants=False)
        product: Tensor
        if torch.is_autocast_enabled(x.device.type):  # there are no sparse rows of half precision
            with torch.autocast(x.device.type, enabled=False):
                product = matrix @ x.to(values.dtype)
        else:
            product = matrix @ x
        return product

    def dense(self) -> Tensor:
        """The matrix with its zeros, shape (rows, columns)."""
        full = self.values.new_zeros(self.rows, self.width)
        rows = torch.arange(self.rows, device=full.device).repeat_interleave(self.row_starts.diff())
        full[rows, self.columns.long()] = self.values
        return full

    @property
    def bytes(self) -> int:
        """Memory of the entries and their places."""
        return sum(t.numel() * t.element_size() for t in (self.row_starts, self.columns, self.values))

    def extra_repr(self) -> str:
        """What ``print(model)`` shows."""
        return f"{self.rows} x {self.width}, {len(self.values)} entries"


class CsrLinear(nn.Module):
    """``nn.Linear`` with a sparse weight; equal to it up to rounding, for inference.

    >>> CsrLinear(linear)(torch.randn(5, 784)).shape            # (..., in_features) -> (..., out_features)
    torch.Size([5, 256])

    The weights are constants: gradients reach the input and stop there. Under autocast it computes in its own dtype.

    Args:
        linear: the layer; its zeros are left out.
    """

    bias: Tensor | None

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.matrix = CsrMatrix(linear.weight)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, shape (..., out_features)."""
        flat, bias = x.reshape(-1, self.in_features), self.bias
        # a contiguous right-hand side is up to five times as fast as what F.linear makes of a CSR weight
        single = len(flat) == 1
        out: Tensor = self.matrix(flat[0]) if single else self.matrix(flat.t().contiguous()).t().contiguous()
        out = out if bias is None else out + bias
        return out.reshape(*x.shape[:-1], self.out_features)


class CsrConv(nn.Module):
    """``nn.Conv1d`` or ``nn.Conv2d`` with a sparse weight, by unfolding the input; for inference.

    >>> CsrConv(conv)(torch.randn(8, 64, 16, 16)).shape         # (examples, channels, ...) as the convolution's
    torch.Size([8, 128, 16, 16])

    The weights are constants: gradients reach the input and stop there. Under autocast it computes in its own dtype.

    Args:
        conv: the layer; its zeros are left out. Groups are blocks of one matrix.
        together: whether all examples are unfolded into one matrix, which pays for small images, or one after another.
    """

    bias: Tensor | None

    def __init__(self, conv: nn.Conv1d | nn.Conv2d, together: bool = False) -> None:
        super().__init__()
        self.flat, self.together = isinstance(conv, nn.Conv1d), together
        self.out_channels = conv.out_channels
        lead = (1,) if self.flat else ()
        self.kernel, self.stride, self.dilation = (
            (*lead, *each) for each in (conv.kernel_size, conv.stride, conv.dilation)
        )
        self.pads = list(conv._reversed_padding_repeated_twice)
        self.padding_mode = conv.padding_mode
        weight = conv.weight.detach().flatten(1)
        parts = weight.chunk(conv.groups)
        self.matrix = CsrMatrix(torch.block_diag(*parts) if conv.groups > 1 else weight)
        self.register_buffer("bias", None if conv.bias is None else conv.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, shape (examples, out_channels, ...), or without examples as the input is."""
        spatial = 1 if self.flat else 2
        single = x.dim() == spatial + 1
        image: Tensor = x.unsqueeze(0) if single else x
        if any(self.pads):
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            image = F.pad(image, self.pads, mode)
        image = image.unsqueeze(2) if self.flat else image
        size = [
            (n - d * (k - 1) - 1) // s + 1
            for n, d, k, s in zip(image.shape[2:], self.dilation, self.kernel, self.stride, strict=True)
        ]
        if self.together:
            columns = self._unfolded(image).transpose(0, 1).reshape(self.matrix.width, -1)
            out = self.matrix(columns).reshape(self.out_channels, len(image), -1).transpose(0, 1).contiguous()
        else:
            out = torch.stack([self.matrix(self._unfolded(one)[0]) for one in image.split(1)])
        if self.bias is not None:
            out = out + self.bias[:, None]
        shaped: Tensor = out.reshape(len(image), self.out_channels, *size[1 if self.flat else 0 :])
        return shaped[0] if single else shaped

    def _unfolded(self, image: Tensor) -> Tensor:
        if max(self.kernel) == max(self.stride) == 1:
            return image.flatten(2)
        return F.unfold(image, self.kernel, self.dilation, 0, self.stride)


@functools.cache
def quiet() -> None:
    """Let torch say once, where nobody hears it, that its sparse rows are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.eye(1).to_sparse_csr()
