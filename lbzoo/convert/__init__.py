"""Public releases -> lbzoo checkpoint folders, and back."""
