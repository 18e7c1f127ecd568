"""Price & Tanner, "Trajectory growth lower bounds for random sparse deep ReLU networks": its figures."""
