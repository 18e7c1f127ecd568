"""The network as a list of affine and folding steps, read by torch.fx and checked on points."""
