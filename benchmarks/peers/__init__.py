"""The peers: a hand-written script for each way of training, as its own documentation shows it."""
