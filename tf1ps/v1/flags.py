"""`tf.flags` and `tf.app.flags`: a program may define a flag that absl has, such as `log_dir`.

Before TensorFlow 1.5, flags were TensorFlow's own. The flags of absl's logging and app came later,
and refuse a program's flag of the same name. Here the program's flag replaces absl's flag.
"""

from __future__ import annotations

import functools

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace

_ABSL = ("absl.app", "absl.logging")

__getattr__, __dir__ = _namespace.overlay(__name__, tf.app.flags)


def _over_absl(define):
  """Makes a function that defines a flag, which replaces absl's flag of that name."""
  @functools.wraps(define)
  def define_over_absl(*args, **kwargs):
    name = args[0] if args else kwargs.get("name", kwargs.get("flag_name"))
    known = tf.app.flags.FLAGS
    is_absls = name in known and known.find_module_defining_flag(name) in _ABSL
    if is_absls:
      delattr(known, name)
    result = define(*args, **kwargs)
    if is_absls and name == "verbosity":  # when the program starts, absl calls a method of its own
      known[name]._update_logging_levels = lambda: None
      known[name].using_default_value = False  # and sets a value that is the default
    return result

  return define_over_absl


# A flag belongs to the module that defines it: that is the caller of this module.
tf.app.flags.disclaim_key_flags()
for _name in dir(tf.app.flags):
  if _name.startswith("DEFINE_") and _name != "DEFINE_flag":
    globals()[_name] = _over_absl(getattr(tf.app.flags, _name))
