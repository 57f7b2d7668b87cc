"""NumPy with its removed names: `tf1ps-run` gives it to a program's own file that uses such a name.

A name that the installed NumPy still has is NumPy's. The first use of a removed name is printed,
with file and line.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import sys

# {removed name: what takes its place}
REMOVED_FROM_NUMPY = {name: "np." + today for name, today in {
  "Inf": "inf", "Infinity": "inf", "NAN": "nan", "NaN": "nan", "PINF": "inf", "alltrue": "all",
  "asscalar": "ndarray.item", "bool8": "bool_", "bytes0": "bytes_", "cfloat": "complex128",
  "clongfloat": "clongdouble", "complex_": "complex128", "cumproduct": "cumprod",
  "float_": "float64", "in1d": "isin", "infty": "inf", "int0": "intp",
  "issubsctype": "issubdtype", "longcomplex": "clongdouble", "longfloat": "longdouble",
  "mat": "asmatrix", "object0": "object_", "product": "prod", "round_": "round",
  "singlecomplex": "complex64", "sometrue": "any", "str0": "str_", "string_": "bytes_",
  "trapz": "trapezoid", "typeDict": "sctypeDict", "uint0": "uintp", "unicode_": "str_",
  "void0": "void"}.items()}
REMOVED_FROM_NUMPY.update(bool="bool", complex="complex", float="float", int="int", long="int",
                          object="object", str="str", unicode="str")


def __getattr__(name):
  numpy = importlib.import_module("numpy")
  if name not in REMOVED_FROM_NUMPY or name in vars(numpy):  # NumPy warns of some by `getattr`
    return getattr(numpy, name)
  first, *rest = REMOVED_FROM_NUMPY[name].split(".")
  value = functools.reduce(getattr, rest, numpy if rest else getattr(builtins, first))
  frame = sys._getframe(1)
  while frame.f_code.co_filename.startswith("<frozen importlib"):
    frame = frame.f_back
  print("%s:%d: NumPy has no np.%s any more: %s takes its place" % (
    frame.f_code.co_filename, frame.f_lineno, name, REMOVED_FROM_NUMPY[name]), file=sys.stderr,
    flush=True)
  globals()[name] = value
  return value


def __dir__():
  return sorted({*dir(importlib.import_module("numpy")), *REMOVED_FROM_NUMPY})
