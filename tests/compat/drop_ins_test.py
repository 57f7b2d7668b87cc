from __future__ import annotations

from tf1ps.compat import drop_ins


class Stock:
  pass


class Replacement(Stock, metaclass=drop_ins.DropIn):
  _replaces = Stock


class OfAProgram(Replacement):
  pass


class FurtherStock(Stock):
  pass


def test_what_counts_as_the_replaced_class_counts_as_the_drop_in():
  for kind in (Stock, FurtherStock, Replacement, OfAProgram):
    assert isinstance(kind(), Replacement) and issubclass(kind, Replacement)
  assert not isinstance(7, Replacement) and not issubclass(int, Replacement)


def test_a_programs_subclass_has_its_own_objects_alone():
  for kind in (Stock, FurtherStock, Replacement):
    assert not isinstance(kind(), OfAProgram) and not issubclass(kind, OfAProgram)
  assert isinstance(OfAProgram(), OfAProgram) and not isinstance(Replacement(), FurtherStock)
