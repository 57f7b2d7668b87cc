"""The allowed values of this room's options. This module does not import TensorFlow."""

RESOURCE, _ = VARIABLES = ("resource", "ref")

# The default learning rate of each optimizer.
LEARNING_RATES = {
  "sgd": 0.01,
  "momentum": 0.01,
  "nesterov": 0.01,
  "adam": 0.001,
  "lazy_adam": 0.001,
  "adagrad": 0.05,
  "adadelta": 1.0,
  "rmsprop": 0.001,
  "ftrl": 0.05,
  "proximal_sgd": 0.01,
  "proximal_adagrad": 0.05,
}
OPTIMIZERS = tuple(LEARNING_RATES)
