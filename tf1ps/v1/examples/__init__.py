"""`tensorflow.examples.tutorials`: the reader of handwritten digits."""
