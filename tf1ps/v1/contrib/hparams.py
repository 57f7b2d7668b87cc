"""HParams: named hyperparameters with fixed types, set by keywords, a string, a dict or JSON."""

from __future__ import annotations

import json
import numbers
import re
from typing import Any, Dict

_ASSIGNMENT = re.compile(
    r"\s*(?P<name>[a-zA-Z]\w*)\s*(\[\s*(?P<index>\d+)\s*\])?\s*=\s*"
    r"(\[(?P<values>[^\]]*)\]|(?P<value>[^,\[]*))\s*(,|$)")


def parse_values(values: str, type_map: Dict[str, type], ignore_unknown: bool = False):
  """Parses assignments such as "rate=0.1,layers=[64,32],layers[1]=16".

  Args:
    values: the assignments, with commas between.
    type_map: the type of each name's value, or of the elements of its list.
    ignore_unknown: whether a name that is not in type_map is passed over.

  Returns:
    {name: value, list of values, or {index: value}}.

  Raises:
    ValueError: the text is malformed, a name is unknown or set twice, or a value has another type.
  """
  results = {}
  position = 0
  while position < len(values):
    found = _ASSIGNMENT.match(values, position)
    if not found:
      raise ValueError("%r is no list of assignments such as a=1,b=[2,3]: it goes wrong at %r."
                       % (values, values[position:]))
    position = found.end()
    name, index = found.group("name"), found.group("index")
    if name not in type_map:
      if ignore_unknown:
        continue
      raise ValueError("There is no hyperparameter %r. There are: %s."
                       % (name, ", ".join(sorted(type_map))))
    if found.group("values") is not None:
      texts = [text for text in found.group("values").split(",") if text.strip()]
      value = [_parse(name, text, type_map[name]) for text in texts]
    else:
      value = _parse(name, found.group("value"), type_map[name])
    if index is not None:
      of_name = results.setdefault(name, {})
      if not isinstance(of_name, dict) or int(index) in of_name:
        raise ValueError("%r sets %s twice." % (values, name))
      of_name[int(index)] = value
    elif name in results:
      raise ValueError("%r sets %s twice." % (values, name))
    else:
      results[name] = value
  return results


def _parse(name, text, of_type):
  text = text.strip()
  try:
    if of_type is bool:
      return text.lower() == "true" if text.lower() in ("true", "false") else bool(int(text))
    return of_type(text)
  except ValueError:
    raise ValueError("%s is of type %s, and %r is none." % (name, of_type.__name__, text)) from None


def _cast(name, value, of_type):
  """Returns a value of the hyperparameter's type; an integer also passes for a float."""
  if of_type is type(None) or value is None or isinstance(value, of_type) and (
      of_type is bool or not isinstance(value, bool)):
    return value
  is_number = isinstance(value, numbers.Number) and not isinstance(value, bool)
  if of_type is float and is_number or (
      of_type is int and isinstance(value, numbers.Integral) and is_number):
    return of_type(value)
  raise ValueError("%s is of type %s, and %r is none." % (name, of_type.__name__, value))


class HParams:
  """Hyperparameters. Each is an attribute, and keeps the type of its first value.

  Args:
    **kwargs: names and values. The type of a list is that of its first element.
  """

  def __init__(self, hparam_def=None, model_structure=None, **kwargs):
    if hparam_def is not None:
      raise ValueError("HParams takes keywords only; protocol buffers went with TensorFlow 1.15.")
    self._types = {}
    self._model_structure = model_structure
    for name, value in kwargs.items():
      self.add_hparam(name, value)

  def add_hparam(self, name: str, value: Any) -> None:
    """Adds one; a tuple becomes a list."""
    if hasattr(self, name):
      raise ValueError("The name %r is taken." % name)
    is_list = isinstance(value, (list, tuple))
    if is_list and not value:
      raise ValueError("%s is an empty list, which has no type." % name)
    self._types[name] = (type(value[0] if is_list else value), is_list)
    setattr(self, name, list(value) if is_list else value)

  def set_hparam(self, name: str, value: Any) -> None:
    """Changes one that is there."""
    if name not in self._types:
      raise ValueError("There is no hyperparameter %r. There are: %s."
                       % (name, ", ".join(sorted(self._types))))
    of_type, is_list = self._types[name]
    if is_list != isinstance(value, list):
      raise ValueError("%s is %s list, and got %r." % (name, "a" if is_list else "no", value))
    setattr(self, name, [_cast(name, element, of_type) for element in value] if is_list
            else _cast(name, value, of_type))

  def del_hparam(self, name: str) -> None:
    """Removes one, if it is there."""
    if self._types.pop(name, None):
      delattr(self, name)

  def parse(self, values: str) -> "HParams":
    """Sets what a string says, such as "rate=0.1,layers=[64,32],layers[1]=16"; returns self."""
    parsed = parse_values(values, {name: kind for name, (kind, _) in self._types.items()})
    for name, value in parsed.items():
      if isinstance(value, dict):
        changed = list(getattr(self, name))
        for index, element in value.items():
          if index >= len(changed):
            raise ValueError("%s has %d elements, and none at %d." % (name, len(changed), index))
          changed[index] = element
        value = changed
      self.set_hparam(name, value)
    return self

  def override_from_dict(self, values_dict: Dict[str, Any]) -> "HParams":
    """Sets what a dict says; returns self."""
    for name, value in values_dict.items():
      self.set_hparam(name, value)
    return self

  def parse_json(self, values_json: str) -> "HParams":
    """Sets what a JSON object says; returns self."""
    return self.override_from_dict(json.loads(values_json))

  def to_json(self, indent=None, separators=None, sort_keys=False) -> str:
    """Returns all as a JSON object; functions are left out."""
    return json.dumps({name: value for name, value in self.values().items() if not callable(value)},
                      indent=indent, separators=separators, sort_keys=sort_keys)

  def values(self) -> Dict[str, Any]:
    """Returns {name: value}."""
    return {name: getattr(self, name) for name in self._types}

  def get(self, key: str, default: Any = None) -> Any:
    """Returns one, or the default where it is not there."""
    return getattr(self, key) if key in self._types else default

  def get_model_structure(self):
    """Returns what `set_model_structure` has set."""
    return self._model_structure

  def set_model_structure(self, model_structure) -> None:
    """Keeps a value that is no hyperparameter."""
    self._model_structure = model_structure

  def __contains__(self, key):
    return key in self._types

  def __repr__(self):
    return "HParams(%s)" % ", ".join(
        "%s=%r" % item for item in sorted(self.values().items()))
