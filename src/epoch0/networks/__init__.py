"""Random networks as plain torch modules, one at a time or by the thousand."""

from epoch0.networks.constructions import folding, sawtooth
from epoch0.networks.convolutional import vanilla_cnn, vgg
from epoch0.networks.dense import Ensemble, ensemble, mlp
from epoch0.networks.residual import residual_chain, resnet

__all__ = ["Ensemble", "ensemble", "folding", "mlp", "residual_chain", "resnet", "sawtooth", "vanilla_cnn", "vgg"]
