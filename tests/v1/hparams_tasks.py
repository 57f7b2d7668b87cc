"""HParams beside those of TensorFlow 1.15, which are there on TensorFlow 1.15 alone."""
from __future__ import annotations

import itertools

import tensorflow

TYPES = {"a": int, "f": float, "s": str, "b": bool, "a.b": int, "x": lambda text: text * 2}
DEFINED = "HParams(a=1, f=0.5, s='t', b=True, l=[1, 2], g=[0.5], w=('u', 'v'), c=[True])"
# {an expression: its value, or the error's type and the first words of its message}. As on 1.15.
CASES = {
  "parse_values('a=1,f=1,s=x y,b=true', TYPES)": {"a": 1, "f": 1.0, "s": "x y", "b": True},
  "parse_values('a.b=3,a = 2, f=1e3,', TYPES)": {"a.b": 3, "a": 2, "f": 1000.0},
  "parse_values('s=,b=0', TYPES)": {"s": "", "b": False},
  "parse_values('s=/a=b/c', TYPES)": {"s": "/a=b/c"},
  "parse_values('a=[1, 2],s=[u v,w],b=[]', TYPES)": {"a": [1, 2], "s": ["u", "v", "w"], "b": []},
  "parse_values('a[1]=2,a[ 0 ]=3,a.b[2]=4', TYPES)": {"a": {1: 2, 0: 3}, "a.b": {2: 4}},
  "parse_values('z=1,a=2,z[0]=3,z=[4]', TYPES, True)": {"a": 2},
  "parse_values('x=ab', TYPES)": {"x": "abab"},
  "parse_values('', TYPES)": {},
  "parse_values(' a=1', TYPES)": "ValueError: Malformed hyperparameter value",
  "parse_values('a=1,,f=2', TYPES)": "ValueError: Malformed hyperparameter value",
  "parse_values('a[-1]=1', TYPES)": "ValueError: Malformed hyperparameter value",
  "parse_values('a[x]=1', TYPES)": "ValueError: Malformed hyperparameter value",
  "parse_values('a=1;f', TYPES)": "ValueError: Could not parse hparam 'a' of type 'int'",
  "parse_values('a=1.0', TYPES)": "ValueError: Could not parse hparam 'a' of type 'int'",
  "parse_values('b=TRUE', TYPES)": "ValueError: Could not parse hparam 'b' of type 'bool'",
  "parse_values('f=[x]', TYPES)": "ValueError: Could not parse hparam 'f' of type 'float'",
  "parse_values('z[0]=1', TYPES)": "ValueError: Unknown hyperparameter type for z",
  "parse_values('a[0]=[1]', TYPES)": "ValueError: Assignment of a list to a list index",
  "parse_values('a=1,a=2', TYPES)": "ValueError: Multiple assignments to variable 'a'",
  "parse_values('a[0]=1,a[0]=2', TYPES)": "ValueError: Multiple assignments to variable 'a[0]'",
  "parse_values('a=[1],a[0]=2', TYPES)": "ValueError: Multiple assignments to variable 'a'",
  "parse_values('a[0]=2,a=1', TYPES)": "ValueError: Multiple assignments to variable 'a'",
  "HParams().parse('z=1')": "ValueError: Unknown hyperparameter type for z",
  "DEFINED.parse('a=[1]')": "ValueError: Must not pass a list for single-valued parameter",
  "DEFINED.parse('l=1')": "ValueError: Must pass a list for multi-valued parameter",
  "DEFINED.parse('a[0]=1')": "ValueError: Could not cast hparam 'a'",
  "DEFINED.parse('s=,f=-2').values()":
    {"a": 1, "f": -2.0, "s": "", "b": True, "l": [1, 2], "g": [0.5], "w": ("u", "v"), "c": [True]},
  "DEFINED.override_from_dict({'a': -2, 'g': [1, 2]}).g": [1.0, 2.0],
  "DEFINED.override_from_dict({'z': 1})": "KeyError: ",
  "DEFINED.parse_json('{\"a\": 3, \"l\": []}').l": [],
  "DEFINED.set_from_map({'a': 4}).a": 4,
  "DEFINED.parse_json('{\"a\": 1.5}')": "ValueError: Could not cast hparam 'a'",
  "DEFINED.set_hparam('a', None)": "ValueError: Could not cast hparam 'a'",
  "DEFINED.get('a', 5)": 1,
  "DEFINED.get('a', 5.0)": "ValueError: ",
  "DEFINED.get('f', 5)": 0.5,
  "DEFINED.get('l', 5)": "ValueError: Hparam 'l' of type",
  "DEFINED.get('a', [5])": "ValueError: Hparam 'a' of type",
  "DEFINED.get('l', ['u'])": "ValueError: ",
  "DEFINED.get('z', 5)": 5,
  "DEFINED.get('z')": None,
  "DEFINED.add_hparam('a', 1)": "ValueError: Hyperparameter name is reserved: a",
  "DEFINED.add_hparam('parse', 1)": "ValueError: Hyperparameter name is reserved: parse",
  "HParams(l=[])": "ValueError: Multi-valued hyperparameters cannot be empty: l",
  "'a' in DEFINED, 'z' in DEFINED": (True, False),
  "str(HParams(a=1, f=2.0, l=[3, 4], s='u'))": "a=1,f=2.0,l=[3, 4],s=u",
  "HParams(a=0, f=1.0, l=[0], b=True).parse(str(HParams(a=1, f=.5, l=[3, 4], b=False))).values()":
    {"a": 1, "f": 0.5, "l": [3, 4], "b": False},
  "repr(HParams(b='x', a=1))": "HParams([('a', 1), ('b', 'x')])",
  "HParams(a=1, b=[True]).to_json()": '{"a": 1, "b": [true]}',
  "HParams(hparam_def=DEFINED.to_proto()).values()":
    {"a": 1, "f": 0.5, "s": "t", "b": True, "l": [1, 2], "g": [0.5], "w": ["u", "v"], "c": [True]},
  "HParams.from_proto(HParams(b=True).to_proto()).b": True,
  "HParams(n=None).to_proto()": "ValueError: Unsupported parameter type",
  "HParams(DEFINED.to_proto(), a=1)": "ValueError: ",
  "DEFINED.to_proto().hparam['l'].int64_list.value[:]": [1, 2],
}


def outcome(module, expression):
  """Returns the value of an expression, or the error's type and message."""
  names = {"HParams": module.HParams, "parse_values": module.parse_values, "TYPES": TYPES}
  names["DEFINED"] = eval(DEFINED, names)
  try:
    return eval(expression, names)
  except Exception as error:
    return "%s: %s" % (type(error).__name__, error.args[0])


def cases():
  """Checks each case with HParams of tf1ps, and of TensorFlow 1.15 where they are there."""
  from tf1ps.v1.contrib import hparams
  modules = [hparams]
  if tensorflow.__version__.startswith("1."):
    modules.append(tensorflow.contrib.training)
  for (expression, expected), module in itertools.product(CASES.items(), modules):
    found = outcome(module, expression)
    same = type(found) is type(expected) and (
      found.startswith(expected) if isinstance(expected, str) else found == expected)
    assert same, (module.__name__, expression, found, expected)


_NAMES = ("a", "f", "s", "b", "z", "a.b", "_a", "")
_LEFT = ("%s", "%s[0]", "%s[1]", "%s[ 0 ]", "%s[-1]", " %s", "%s ")
_RIGHT = ("1", "-1.5", "true", "False", "x", "", "[1,2]", "[1 2]", "[]", "[true,x]", "[1", "1]",
          " 7", "7 ", "u v", "=")
_VALUES = (None, True, 0, 7, 1.5, "x", "7", b"x", [], [1], [1.5], ["x"], [True], [None], (1,), {})


def everything():
  """Compares HParams with those of TensorFlow 1.15 on thousands of combinations."""
  from tf1ps.v1.contrib import hparams
  stock, count = tensorflow.contrib.training, 0

  def compare(expression):
    ours, theirs = outcome(hparams, expression), outcome(stock, expression)
    if isinstance(theirs, str) and "Error: " in theirs:  # the first words are the same
      theirs = " ".join(theirs.replace("Hparam", "ValueError: Hparam").split()[:4])
      assert isinstance(ours, str) and ours.split(":")[0] == theirs.split(":")[0], (
        expression, ours, theirs)
    else:
      assert type(ours) is type(theirs) and repr(ours) == repr(theirs), (expression, ours, theirs)
    return 1

  one = [(left % name) + "=" + right for name in _NAMES for left in _LEFT for right in _RIGHT]
  for text in one:
    for suffix in ("", ",", ", a=2", ",a[1]=2"):
      for ignore in (False, True):
        count += compare("parse_values(%r, TYPES, %r)" % (text + suffix, ignore))
  for value in _VALUES:
    for name in ("a", "f", "s", "b", "l", "g", "w", "c", "z"):
      count += compare("(lambda h: (h.set_hparam(%r, %r), h.values())[1])(DEFINED)" % (name, value))
      count += compare("DEFINED.get(%r, %r)" % (name, value))
    for method in ("values()", "to_json()", "to_proto().SerializeToString()"):
      count += compare("HParams(k=%r).%s" % (value, method))
    for other in _VALUES:
      count += compare("(lambda h: (h.set_hparam('k', %r), str(h), repr(h)))(HParams(k=%r))" % (
        other, value))
  print(count, "outcomes are the same")
