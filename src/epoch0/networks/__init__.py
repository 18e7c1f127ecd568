"""What is studied: random networks as plain torch modules, one at a time or by the thousand."""

from epoch0.networks.constructions import folding, sawtooth
from epoch0.networks.convolutional import vanilla_cnn
from epoch0.networks.dense import mlp
from epoch0.networks.ensemble import Ensemble, ensemble
from epoch0.networks.residual import residual_chain, resnet
from epoch0.networks.vgg import vgg

__all__ = ["Ensemble", "ensemble", "folding", "mlp", "residual_chain", "resnet", "sawtooth", "vanilla_cnn", "vgg"]
