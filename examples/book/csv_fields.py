"""decode_csv: the default of each field sets its type, and the value of a missing field.

Example B23. Section: data.
Mechanism: record_defaults.
The defaults 5., 6 and 7 mean a float and two ints, and they are the values of empty fields. An
empty default makes a field required. decode_csv takes a vector of lines in one call and returns a
vector per column. That is many times faster than line by line (python -m benchmarks input_csv).
Defaults may be constants or lists.
Toolkit: bare TensorFlow.

    $ python examples/book/csv_fields.py
    [1.0, 6, 44]
    dtypes: ['float32', 'int32', 'int32']
    two lines at once: [[1.0, 2.5], [6, 3], [44, 7]]
    a required field is missing: InvalidArgumentError: Field 1 is required but missing in record 0!
    not a number: InvalidArgumentError: Field 1 in record 0 is not a valid int32: x
    too few fields: InvalidArgumentError: Expect 3 fields but have 2 in record 0
"""

import re

import tensorflow.compat.v1 as tf

DEFAULTS = [[5.0], [6], [7]]


def as_python(values):
  """Turns numpy's numbers, which print differently in numpy 1 and 2, into Python's."""
  return [value.tolist() for value in values]


def refused(session, line, defaults):
  """Decodes a bad line; returns the error and its sentence."""
  try:
    session.run(tf.io.decode_csv(line, defaults))
  except tf.errors.InvalidArgumentError as error:
    # The text around this sentence depends on TensorFlow's version.
    sentence = re.search(r"(Field|Expect) .*", error.message).group()
    return "%s: %s" % (type(error).__name__, re.sub(r"\s*\[\[.*", "", sentence))


def main():
  """Decodes some lines."""
  tf.disable_v2_behavior()
  fields = tf.io.decode_csv(tf.constant("1.,,44"), [tf.constant(value) for value in DEFAULTS])
  columns = tf.io.decode_csv(["1.,,44", "2.5,3,"], DEFAULTS)
  required = [[5.0], tf.zeros([0], tf.int32), [7]]
  with tf.Session() as session:
    print(as_python(session.run(fields)))
    print("dtypes:", [field.dtype.name for field in fields])
    print("two lines at once:", as_python(session.run(columns)))
    print("a required field is missing:", refused(session, "1.,,44", required))
    print("not a number:", refused(session, "1.,x,44", DEFAULTS))
    print("too few fields:", refused(session, "1.,44", DEFAULTS))


if __name__ == "__main__":
  main()
