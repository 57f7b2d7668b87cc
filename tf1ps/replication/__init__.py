"""How several replicas train one model: whose gradients make an update, and when."""
