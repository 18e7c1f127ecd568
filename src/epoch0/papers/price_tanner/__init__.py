"""Price & Tanner, "Trajectory growth lower bounds for random sparse deep ReLU networks": its figures."""

from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.price_tanner import circle, subvectors, sweeps, trained

_ALL = {artifact.id: artifact for part in (circle, sweeps, subvectors, trained) for artifact in part.ARTIFACTS}
ARTIFACTS: tuple[OldArtifact, ...] = tuple(_ALL[name] for name in sorted(_ALL))
"""In the order of the paper."""
