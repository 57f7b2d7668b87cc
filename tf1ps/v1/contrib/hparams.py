"""HParams: named hyperparameters with fixed types, set by keywords, a string, a dict or JSON.

Programs and their tests recognise errors by the first words of the messages, so the messages begin
like the messages of TensorFlow 1.15.
"""

from __future__ import annotations

import json
import numbers
import re
from typing import Any, Dict

from tf1ps.v1.contrib import hparam_def as _hparam_def

_NAME = r"(?P<name>[a-zA-Z][\w.]*)"
_INDEX = r"(?:\[\s*(?P<index>\d+)\s*\])?"
_ASSIGNMENT = re.compile(
    _NAME + _INDEX + r"\s*=\s*(?:(?P<value>[^,\[]*)|\[(?P<values>[^\]]*)\])(?:$|,\s*)")
_BOOLS = {"true": True, "True": True, "false": False, "False": False}


def parse_values(values: str, type_map: Dict[str, type], ignore_unknown: bool = False):
  """Parses assignments such as "rate=0.1,layers=[64,32],layers[1]=16".

  Args:
    values: the assignments, with commas between them.
    type_map: the type of each name's value, or of the elements of its list.
    ignore_unknown: whether a name that is not in type_map is ignored.

  Returns:
    {name: value, list of values, or {index: value}}.

  Raises:
    ValueError: the text is malformed, a name is unknown or set twice, or a value has another type.
  """
  results = {}
  position = 0
  while position < len(values):
    assignment = _ASSIGNMENT.match(values, position)
    if not assignment:
      raise ValueError("Malformed hyperparameter value: %s" % values[position:])
    position = assignment.end()
    if assignment.group("name") in type_map:
      _add(results, assignment, type_map[assignment.group("name")])
    elif not ignore_unknown:
      raise ValueError("Unknown hyperparameter type for %s%s" % (
        assignment.group("name"), _known(type_map)))
  return results


def _add(results, assignment, of_type):
  name, index, values = assignment.group("name", "index", "values")
  if values is not None and index is not None:
    raise ValueError("Assignment of a list to a list index: %s" % assignment.group())
  if values is not None:
    value = [_parse(name, text, of_type) for text in re.split("[ ,]", values) if text]
  else:
    value = _parse(name, assignment.group("value"), of_type)
  before = results.get(name)
  if name in results and (index is None or not isinstance(before, dict)):
    raise ValueError("Multiple assignments to variable '%s' in %s" % (name, assignment.string))
  if index is None:
    results[name] = value
  elif int(index) in results.setdefault(name, {}):
    raise ValueError("Multiple assignments to variable '%s[%s]' in %s" % (
      name, index, assignment.string))
  else:
    results[name][int(index)] = value


def _parse(name, text, of_type):
  try:
    if of_type is bool:
      return _BOOLS[text] if text in _BOOLS else bool(int(text))
    return of_type(text)
  except ValueError:
    raise ValueError("Could not parse hparam '%s' of type '%s' with value '%s'" % (
      name, of_type.__name__, text)) from None


def _cast(name, value, of_type):
  """Returns a value of the hyperparameter's type; an integer also passes for a float."""
  if type(value) is of_type or of_type is type(None):
    return value
  fits = (issubclass(of_type, bool) == isinstance(value, bool)
          and (isinstance(value, (str, bytes)) or not issubclass(of_type, (str, bytes)))
          and (isinstance(value, numbers.Integral) or not issubclass(of_type, numbers.Integral))
          and (isinstance(value, numbers.Number) or not issubclass(of_type, numbers.Number)))
  if not fits:
    raise ValueError("Could not cast hparam '%s' of type '%s' from value %r" % (
      name, of_type.__name__, value))
  return of_type(value)


def _known(names):
  return ". There are: %s." % ", ".join(sorted(names)) if names else ": there are none."


class HParams:
  """Hyperparameters: each is an attribute, and keeps the type of its first value.

  Args:
    hparam_def: a protocol buffer of `to_proto`, instead of keywords.
    model_structure: a value that is not a hyperparameter.
    **kwargs: names and values. The first element of a list determines its type.

  Raises:
    ValueError: hparam_def and keywords are both given; a name is taken; or the type of a value
      cannot be the type of a hyperparameter.
  """

  def __init__(self, hparam_def=None, model_structure=None, **kwargs):
    self._hparam_types = {}
    self._model_structure = model_structure
    if hparam_def and kwargs:
      raise ValueError("HParams takes a hparam_def or keywords, not both: they are mutually "
                       "exclusive")
    if hparam_def:
      kwargs = {name: _value_of(value) for name, value in hparam_def.hparam.items()}
    for name, value in kwargs.items():
      self.add_hparam(name, value)

  def add_hparam(self, name: str, value: Any) -> None:
    """Adds a hyperparameter; raises ValueError if the name is taken, or for an empty list."""
    if getattr(self, name, None) is not None:
      raise ValueError("Hyperparameter name is reserved: %s" % name)
    is_list = isinstance(value, (list, tuple))
    if is_list and not value:
      raise ValueError("Multi-valued hyperparameters cannot be empty: %s" % name)
    self._hparam_types[name] = (type(value[0] if is_list else value), is_list)
    setattr(self, name, value)

  def set_hparam(self, name: str, value: Any) -> None:
    """Changes a value; raises KeyError for an unknown name, ValueError for another type."""
    if name not in self._hparam_types:
      raise KeyError("%s%s" % (name, _known(self._hparam_types)))
    of_type, is_list = self._hparam_types[name]
    if isinstance(value, list) and not is_list:
      raise ValueError("Must not pass a list for single-valued parameter: %s" % name)
    if is_list and not isinstance(value, list):
      raise ValueError("Must pass a list for multi-valued parameter: %s" % name)
    setattr(self, name, [_cast(name, element, of_type) for element in value] if is_list
            else _cast(name, value, of_type))

  def del_hparam(self, name: str) -> None:
    """Removes a hyperparameter, if it exists."""
    if self._hparam_types.pop(name, None):
      delattr(self, name)

  def parse(self, values: str) -> HParams:
    """Sets the values in a string like "rate=0.1,layers=[64,32],layers[1]=16"; returns self.

    Raises:
      ValueError: an error of `parse_values`, or a list has no such element.
    """
    parsed = parse_values(values, {name: kind for name, (kind, _) in self._hparam_types.items()})
    for name, value in parsed.items():
      if isinstance(value, dict) and self._hparam_types[name][1]:
        value = self._with_elements(name, value)
      self.set_hparam(name, value)
    return self

  def _with_elements(self, name, elements):
    changed = list(getattr(self, name))
    for index, element in elements.items():
      if index >= len(changed):
        raise ValueError("%s has %d elements, and none at %d" % (name, len(changed), index))
      changed[index] = element
    return changed

  def override_from_dict(self, values_dict: Dict[str, Any]) -> HParams:
    """Sets the values in a dict; returns self."""
    for name, value in values_dict.items():
      self.set_hparam(name, value)
    return self

  set_from_map = override_from_dict

  def parse_json(self, values_json: str) -> HParams:
    """Sets the values in a JSON object; returns self."""
    return self.override_from_dict(json.loads(values_json))

  def to_json(self, indent=None, separators=None, sort_keys=False) -> str:
    """Returns all hyperparameters as a JSON object, without functions."""
    return json.dumps({name: value for name, value in self.values().items() if not callable(value)},
                      indent=indent, separators=separators, sort_keys=sort_keys)

  def to_proto(self, export_scope=None):
    """Returns all hyperparameters as a protocol buffer; ValueError for a type that does not fit."""
    del export_scope
    message = _hparam_def.message_class()()
    for name, (of_type, is_list) in self._hparam_types.items():
      kind, value = _hparam_def.kind_of(of_type, is_list), getattr(self, name)
      values = [each.encode() if isinstance(each, str) else each
                for each in (value if is_list else [value])]
      if is_list:
        getattr(message.hparam[name], kind).value.extend(values)
      else:
        setattr(message.hparam[name], kind, values[0])
    return message

  @staticmethod
  def from_proto(hparam_def, import_scope=None) -> HParams:
    """Makes hyperparameters from a protocol buffer."""
    del import_scope
    return HParams(hparam_def=hparam_def)

  def values(self) -> Dict[str, Any]:
    """Returns {name: value}."""
    return {name: getattr(self, name) for name in self._hparam_types}

  def get(self, key: str, default: Any = None) -> Any:
    """Returns a value, or `default` for an unknown name; ValueError for another type."""
    if key not in self._hparam_types:
      return default
    of_type, is_list = self._hparam_types[key]
    if default is not None:
      if is_list != isinstance(default, list):
        raise ValueError("Hparam '%s' of type '%s%s' is incompatible with default=%s" % (
          key, "list of " * is_list, of_type.__name__, default))
      for each in default if is_list else [default]:
        _cast(key, each, of_type)
    return getattr(self, key)

  def get_model_structure(self):
    """Returns the value that `set_model_structure` has set."""
    return self._model_structure

  def set_model_structure(self, model_structure) -> None:
    """Keeps a value that is not a hyperparameter."""
    self._model_structure = model_structure

  def __contains__(self, key):
    return key in self._hparam_types

  def __str__(self):
    """Text that `parse` takes."""
    return ",".join("%s=%s" % item for item in self.values().items())

  def __repr__(self):
    return "%s(%s)" % (type(self).__name__, sorted(self.values().items()))


def _value_of(value):
  kind = value.WhichOneof("kind")
  held = getattr(value, kind)
  held = list(held.value) if kind.endswith("_list") else [held]
  held = [each.decode() if isinstance(each, bytes) else each for each in held]
  return held if kind.endswith("_list") else held[0]
