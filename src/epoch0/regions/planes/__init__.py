"""A window in a plane of input space, cut into the cells on which a network is linear."""
