"""What one training of Hayou et al.'s accuracy tables is: network, data, pruning method, schedule (section 4.2)."""

from dataclasses import dataclass, replace

from epoch0.distributions import Law


@dataclass(frozen=True)
class Method:
    """A way to prune: a function of :mod:`epoch0.prune` that scores (None: no pruning), and what comes with it."""

    label: str
    score: str | None
    stable: bool = False  # on a Stable ResNet
    rescaled: bool = False  # kept weights, by one factor a layer


# By the names that recipes use. "obd" is the reference that trains, prunes and trains again; all others prune at
# initialization and train once.
METHODS: dict[str, Method] = {
    "none": Method("not pruned", None),
    "obd": Method("OBD", "obd"),
    "random": Method("random", "random"),
    "magnitude": Method("magnitude", "magnitude"),
    "snip": Method("SNIP", "snip"),
    "grasp": Method("GraSP", "grasp"),
    "grasp-sr": Method("GraSP-SR", "grasp", stable=True),
    "synflow": Method("SynFlow", "synflow"),
    "sbp-sr": Method("SBP-SR", "snip", stable=True),
    "eoc-rescaling": Method("EOC + rescaling", "snip", rescaled=True),
}


@dataclass(frozen=True)
class Network:
    """A "resnet", "vgg" or "vanilla_cnn" up to its inputs and classes; whether it is stable is the method's.

    ``width`` is a factor on the channels, of a vanilla CNN their number. ``weights`` is the law of a weight before the
    division by sqrt(fan_in).
    """

    kind: str = "resnet"
    depth: int = 32
    width: float = 2.0
    activation: str = "relu"
    variant: str = "cifar"
    stem: str | None = None
    repeat: int = 1
    norm: str | None = "batch"
    padding: str = "zeros"
    weights: Law | None = None
    biases: Law | None = None

    @property
    def name(self) -> str:
        """Kind and depth as the paper writes them."""
        if self.kind == "vgg":
            return f"{f'{self.repeat}x' if self.repeat > 1 else ''}VGG{self.depth}"
        return f"V-CNN-{self.depth}" if self.kind == "vanilla_cnn" else f"ResNet-{self.depth}"


@dataclass(frozen=True)
class Recipe:
    """One training run: everything but the seed.

    >>> Recipe(Network("resnet", 32, 2.0), "cifar10", "sbp-sr", 0.995)       # one entry of Table 1; 160 epochs

    The defaults are the paper's where it says something, else those of Wang et al. (2020), to whom it points. Three
    choices decide masks, and the paper leaves them open: scores see the statistics of their batch (``batch_norm``), one
    batch of 10 images of each class, and cross-entropy; docs/hayou-accuracy says why. The OBD reference is trained
    first, and again after each of its prunings, by an exponential schedule; the last training is that of all methods.
    """

    network: Network
    data: str
    method: str
    sparsity: float
    epochs: int = 160
    batch_size: int = 128
    learning_rate: float = 0.1
    drops: tuple[float, ...] = (0.5, 0.75)  #: where the rate falls, in fractions of the epochs, or epochs if integers
    drop_factor: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augment: bool = True
    batch_norm: str = "train"
    score_per_class: int = 10
    score_batches: int = 1  #: more than one saves memory, and each has its own batch statistics
    synflow_steps: int = 100
    #: score, prune and rescale without batch norm, then add it, as public code of two authors does for EOC + rescaling
    norm_after: bool = False
    obd_rounds: int = 2
    obd_batches: int = 8
    examples: int | None = None  #: the first so many images only, None takes all; of test images, ``tested``
    tested: int | None = None
    tested_every: int = 1

    @property
    def trainings(self) -> int:
        """How often a run trains its network; more than once for the OBD reference alone."""
        return 1 + (self.obd_rounds if self.method == "obd" else 0)

    @property
    def tests(self) -> int:
        """Tests of all trainings of a run, the one before each included."""
        return self.trainings * (1 + -(-self.epochs // self.tested_every))


def with_method(recipe: Recipe, method: str, sparsity: float) -> Recipe:
    """The recipe for another method and sparsity, which is 0 without pruning; only who rescales has norms later."""
    late = recipe.norm_after and METHODS[method].rescaled
    return replace(recipe, method=method, sparsity=0.0 if method == "none" else sparsity, norm_after=late)
