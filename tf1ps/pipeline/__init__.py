"""How records reach a worker: the worker's share of the data."""
