"""`tensorflow.examples.tutorials`: the reader of MNIST, and a network for it."""
