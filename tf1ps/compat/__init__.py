"""What differs between TensorFlow versions, and what current TensorFlow took away."""
