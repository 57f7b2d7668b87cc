"""The handwritten digits that come with the project, in two parts."""

import os

import numpy as np

CSV = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.csv")


def read():
  """Returns (images [rows, 64] in 0 to 1, digits [rows]) to train with, and to test with."""
  rows = np.loadtxt(CSV, delimiter=",")
  images, digits = rows[:, :-1] / 16.0, rows[:, -1].astype(np.int32)
  test = np.arange(len(digits)) % 50 < 10  # writers come one after the other
  return (images[~test], digits[~test]), (images[test], digits[test])
