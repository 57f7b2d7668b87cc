from __future__ import annotations

import numpy
import pytest

from tf1ps.runner import numpy_hints

VERSION = tuple(map(int, numpy.__version__.split(".")[:2]))


@pytest.mark.parametrize("since, fail, said", [
  ((2, 4), lambda: "%f" % numpy.array([1.0]), "write w[0] for w"),
  ((2, 4), lambda: "%d" % numpy.array([1]), "write w[0] for w"),
  ((2, 4), lambda: float(numpy.array([1.0])), "numpy<2.3"),
  ((1, 24), lambda: numpy.asarray([[1], [1, 2]]), "dtype=object"),
  ((2, 3), lambda: numpy.ones(2).tostring(), "tobytes"),
  ((2, 3), lambda: numpy.fromstring(b"ab", dtype=numpy.uint8), "frombuffer"),
  ((1, 0), lambda: float(numpy.array(["a"])[0]), ""),
  ((1, 0), lambda: numpy.ones(2).absent, "")])
def test_what_to_do(since, fail, said):
  if VERSION < since:
    pytest.skip("NumPy %d.%d still takes it" % VERSION)
  with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
    fail()
  hint = numpy_hints.numpy_hint(caught.value)
  assert said in hint and bool(hint) == bool(said)
