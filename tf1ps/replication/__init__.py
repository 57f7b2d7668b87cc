"""How replicas, or parts, of a model work together: whose gradients make an update, and when."""
