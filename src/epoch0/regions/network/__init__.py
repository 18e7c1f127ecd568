"""The network as a list of affine and folding steps, read from one run and checked on other points."""
