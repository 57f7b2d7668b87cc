"""The allowed values of this room's options; importing it does not import TensorFlow."""

GREEDY, ROUND_ROBIN = PS_STRATEGIES = ("greedy", "round_robin")
