"""decode_csv: a default for each field gives its type, and what stands for a missing value.

Example B23. Section: data.
Mechanism: record_defaults.
5., 6 and 7 say: a float, and two ints, and what each is where the line has nothing. An empty
default makes a field required. A vector of lines is decoded at once, to a vector a column: that is
many times faster than line by line (python -m benchmarks input_csv).
Constants work as defaults as lists do.
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
  """Python's numbers for numpy's, which print differently in numpy 1 and 2."""
  return [value.tolist() for value in values]


def refused(session, line, defaults):
  """Decodes what cannot be decoded; returns the error and its sentence."""
  try:
    session.run(tf.io.decode_csv(line, defaults))
  except tf.errors.InvalidArgumentError as error:
    # What stands around this sentence differs between TensorFlow's versions.
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
