from __future__ import annotations

import pytest

from tests.doctor import tables_tasks
from tf1ps import doctor, runner


def fix(text):
  return doctor.fix(doctor.read_program("program.py", text), runner.replace_imports)


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("old, new", [
  ("import tensorflow as tf  # 1.15", "import tf1ps.v1 as tf  # 1.15"),
  ("import tensorflow.compat.v1 as tf", "import tf1ps.v1 as tf"),
  ("import os, tensorflow as tf", "import os\nimport tf1ps.v1 as tf"),
  ("if x:\n  import os, tensorflow as tf\n", "if x:\n  import os\n  import tf1ps.v1 as tf\n"),
  ("if x: import os, tensorflow as tf", "if x: import os; import tf1ps.v1 as tf"),
  ("from tensorflow.contrib import (\n  slim,  # all\n  layers)\nx = 1",
   "from tf1ps.v1.contrib import slim, layers\nx = 1"),
  ("from tensorflow.python.platform import flags", "from tf1ps.v1.app import flags"),
  ("'''\u00e9'''; from tensorflow import contrib; x = 1",
   "'''\u00e9'''; from tf1ps.v1 import contrib; x = 1"),
  ("import tensorflow as tf\r\nx = 1\r\n", "import tf1ps.v1 as tf\r\nx = 1\r\n"),
  ("import tensorflow as tf\nx = '\u00e9' + tf.mul(tf.sub(3, 2), 1)",
   "import tf1ps.v1 as tf\nx = '\u00e9' + tf.multiply(tf.subtract(3, 2), 1)"),
  ("import tf1ps.v1 as tf\ntf.train.SummaryWriter(tf.pack([x]).name)",
   "import tf1ps.v1 as tf\ntf.summary.FileWriter(tf.stack([x]).name)"),
  ("import numpy as np\nnp.zeros(3, np.int) + np.product(np.Inf, dtype=np.float32)",
   "import numpy as np\nnp.zeros(3, int) + np.prod(np.inf, dtype=np.float32)"),
  ("import numpy\nnumpy.bool, numpy.float_", "import numpy\nnumpy.bool, numpy.float64"),
  # another name alone is not enough, or is not written there
  ("import tf1ps.v1 as tf\ntf.scalar_summary('x', x)", None),
  ("import tf1ps.v1 as tf\ntrain = tf.train\ntrain.SummaryWriter(x)", None),
  ("from tf1ps.v1 import mul\nmul(x, y)", None),
  ("import tf1ps.v1 as tf\ntf.Session\ntf.nn.softmax_cross_entropy_with_logits(f(x), y)",
   "import tf1ps.v1 as tf\ntf.Session\n"
   "tf.nn.softmax_cross_entropy_with_logits(logits=f(x), labels=y)"),
  ("import tf1ps.v1 as tf\ntf.Session\ntf.nn.softmax_cross_entropy_with_logits((x), y)", None),
  ("import tf1ps.v1 as tf\ntf.Session\ntf.nn.softmax_cross_entropy_with_logits(x, labels=y)",
   "import tf1ps.v1 as tf\ntf.Session\n"
   "tf.nn.softmax_cross_entropy_with_logits(logits=x, labels=y)"),
  ("x = 'import tensorflow as tf'\n", None),
])
def test_a_change_leaves_the_rest_as_it_is(old, new):
  assert fix(old) == (old if new is None else new)
  assert fix(fix(old)) == fix(old)


@pytest.mark.any_tensorflow
def test_python2_stays():
  text = "import tensorflow as tf\nprint 'a'\n"
  program = doctor.read_program("old.py", text, lambda text: (
    "import tensorflow as tf\nprint('a')\n", [1, 2, 3]))
  assert doctor.fix(program, runner.replace_imports) == text


def test_a_fixed_program_runs(start, tmp_path):
  old = """
import tensorflow as tf
from tensorflow.contrib.framework import get_or_create_global_step

logits = tf.concat(1, [tf.sub([[3.]], [[2.]]), [[0.]]])
loss = tf.nn.softmax_cross_entropy_with_logits(logits, [[1., 0.]])
with tf.Session() as session:
  session.run(get_or_create_global_step().initializer)
  print("loss %.4f" % session.run(tf.reduce_sum(loss)))
"""
  program = doctor.read_program("old.py", fix(old))
  assert not [each for each in doctor.find_all(program) if each.rule.kind == doctor.GONE and
              each.rule.name != "order-before-1.0"]
  task = start("fixed", tables_tasks.run, program.text)
  assert task.wait() == 0, task.output
  assert "loss 0.3133" in task.output
