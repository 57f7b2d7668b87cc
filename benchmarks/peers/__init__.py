"""The peers: one hand-written script a way of training, as its own documentation shows it."""
