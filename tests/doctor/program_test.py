from __future__ import annotations

import ast
import textwrap

import pytest

from tf1ps import doctor
from tf1ps.doctor import program as program_lib

pytestmark = pytest.mark.any_tensorflow
JOINS = doctor.Rule(
  "server-joins", doctor.TRAP, "It joins", "Do not.", "docs/run.md", True,
  lambda program: program.method_calls("tf.train.Server", "join"))


def read(text):
  return doctor.read_program("program.py", textwrap.dedent(text))


def last(program):
  """The expression of the last line."""
  return program.tree.body[-1].value


@pytest.mark.parametrize("source, name", [
  ("import tensorflow as tf\ntf.train.Server", "tf.train.Server"),
  ("import tensorflow\ntensorflow.train.Server", "tf.train.Server"),
  ("import tensorflow.compat.v1 as tf\ntf.train.Server", "tf.train.Server"),
  ("import tensorflow as tf\ntf.compat.v1.train.Server", "tf.train.Server"),
  ("from tensorflow.compat import v1 as tf\ntf.distribute.Server", "tf.train.Server"),
  ("import tf1ps.v1 as tf\ntf.train.Server", "tf.train.Server"),
  ("import tf1ps\ntf1ps.Server", "tf.train.Server"),
  ("from tf1ps.cluster import Server\nServer", "tf.train.Server"),
  ("from tf1ps import pipeline\npipeline.shuffle_batch", "tf.train.shuffle_batch"),
  ("import tf1ps\ntf1ps.coordinator.Server", "tf1ps.coordinator.Server"),
  ("from tensorflow.python.training import server_lib\nserver_lib.Server", "tf.train.Server"),
  ("from tensorflow.python.training.server_lib import Server as S\nS", "tf.train.Server"),
  ("import tensorflow as tf\ntf.queue.FIFOQueue", "tf.FIFOQueue"),
  ("import tensorflow as tf\nqueue = tf.queue\nqueue.FIFOQueue", "tf.FIFOQueue"),
  ("from tensorflow.contrib import slim\nslim.conv2d", "tf.contrib.slim.conv2d"),
  ("import tensorflow.contrib.slim as slim\nslim.conv2d", "tf.contrib.slim.conv2d"),
  ("import tensorflow as tf\nslim = tf.contrib.slim\nslim.conv2d", "tf.contrib.slim.conv2d"),
  ("from tensorflow.python.platform import flags\nflags.FLAGS", "tf.app.flags.FLAGS"),
  ("import tensorflow as tf\ntf.flags.FLAGS", "tf.app.flags.FLAGS"),
  ("import tensorflow.compat.v2 as tf\ntf.constant", "tf2.constant"),
  ("import os.path\nos.path.join", "os.path.join"),
  ("try:\n  import tensorflow.compat.v1 as tf\nexcept ImportError:\n  import tensorflow as tf\n"
   "tf.train.Server", "tf.train.Server"),
  ("import tensorflow as tf\ntf = tf.compat.v1\ntf.train.Server", "tf.train.Server"),
  ("import tensorflow as tf\nqueue = tf.FIFOQueue(3)\nqueue.size", None),
  ("import tensorflow as tf\ntf = make()\ntf.train", None),
  ("try:\n  from tensorflow.contrib import slim\nexcept ImportError:\n  import tf_slim as slim\n"
   "slim.conv2d", None),
  ("x = y\ny = x\nx.train", None),
  ("unknown.train", None),
])
def test_the_name_of_an_expression(source, name):
  program = read(source)
  assert program.name_of(last(program)) == name


@pytest.mark.parametrize("source, origin", [
  ("import tensorflow as tf\ntf.train.Server()", "tensorflow"),
  ("import tensorflow as tf\ntf.compat.v1.train.Server()", "tensorflow.compat.v1"),
  ("import tensorflow.compat.v1 as tf\nserver = tf.train.Server()\nserver.join()",
   "tensorflow.compat.v1"),
  ("import tf1ps.v1 as tf\nserver = tf.train.Server()\nserver.join()", "tf1ps.v1"),
  ("import tf1ps, tensorflow as tf\nserver = tf1ps.Server(tf.train.ClusterSpec({}))\n"
   "server.join()", "tf1ps"),
  ("import tensorflow as tf\ntf = tf.compat.v1\ntf.train.Server()", "tensorflow.compat.v1"),
  ("try:\n  import tensorflow.compat.v1 as tf\nexcept ImportError:\n  import tensorflow as tf\n"
   "tf.train.Server()", "tensorflow.compat.v1"),
  ("f()", ""),
])
def test_where_an_expression_comes_from(source, origin):
  program = read(source)
  assert program.origin_of(last(program)) == origin


def test_calls_of_methods_are_found_by_what_made_their_object():
  program = read("""
      import tensorflow as tf
      class Task:
        def start(self):
          self.server = tf.train.Server({})
        def wait(self):
          self.server.join()
      def main(server):
        server.join()
      server = tf.train.Server({})
      server.join()
      with tf.Session() as session:
        session.run(1)
      """)
  lines = [program.place(call)[0] for call in program.method_calls("tf.train.Server", "join")]
  assert lines == [11, 7]
  call, = program.method_calls("tf.Session", "run")
  assert program.place(call) == (13, 3)


def test_names_that_are_bound_to_one_another_many_times():
  program = read("import tensorflow as tf\n" + "a, b, c, tf.d = b, c, a, a\n" * 30 + "a\n")
  assert program.name_of(last(program)) is None


def test_whole_names():
  program = read("""
      import tensorflow as tf
      layers = tf.layers
      tf.distribute.Server(layers.dense(x).name, tf.mul)
      """)
  assert [name for _, name in program.names()] == [
    "tf.layers", "tf.distribute.Server", "tf.mul", "tf.layers.dense"]


@pytest.mark.parametrize("source, is_guarded", [
  ("try:\n  f()\nexcept ImportError:\n  pass", True),
  ("try:\n  pass\nexcept (AttributeError, ValueError):\n  f()", True),
  ("try:\n  f()\nexcept ValueError:\n  pass", False),
  ("try:\n  pass\nexcept ImportError:\n  pass\nfinally:\n  f()", False),
  ("if tf.__version__ < '2':\n  f()", True),
  ("if hasattr(tf, 'contrib'):\n  f()", True),
  ("if is_chief:\n  f()", False),
])
def test_what_a_program_asks_first(source, is_guarded):
  program = read(source)
  call, = [node for node in program.nodes
           if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "f"]
  assert program.is_guarded(call) == is_guarded


def test_a_name_that_is_none_before():
  program = read("""
      import tensorflow as tf
      server = None
      if a:
        server = tf.train.Server({})
      server.join()
      """)
  assert program.made_by(last(program).func.value) == "tf.train.Server"


def test_values():
  program = read("""
      import tensorflow as tf
      flags = tf.app.flags
      flags.DEFINE_integer("steps", 30, "")
      flags.DEFINE_integer(name="size", default_value=4, help="")
      FLAGS = flags.FLAGS
      secs = 60
      twice = 1
      twice = 2
      tf.f(secs, twice, FLAGS.steps, FLAGS.size, [1, "a"], FLAGS.other, secs=None)
      """)
  call = last(program)
  values = [program.value_of(node, flags=True) for node in call.args]
  unknown = program_lib.UNKNOWN
  assert values == [60, unknown, 30, 4, [1, "a"], unknown]
  assert program.value_of(call.args[2]) is unknown
  assert program.value_of(program.argument(call, "secs")) is None
  assert program.value_of(program.argument(call, "first", 0)) == 60
  assert program.argument(call, "eighth", 7) is None


def test_columns_count_characters():
  program = read("\u00e9 = 1; f()")
  assert program.place(last(program)) == (1, 8)


def test_a_comment_turns_a_rule_off():
  source = """
      import tensorflow as tf
      server = tf.train.Server({})
      server.join()%s
      """
  finding, = doctor.find_all(read(source % ""), [JOINS])
  assert finding[:3] == ("program.py", 4, 1) and finding.rule == JOINS
  for comment, count in (("ignore[server-joins]", 0), ("ignore[other, server-joins]", 0),
                         ("ignore[other]", 1)):
    program = read(source % ("  # tf1ps-doctor: " + comment))
    assert len(doctor.find_all(program, [JOINS])) == count, comment


@pytest.mark.parametrize("old, new", [
  ("import tensorflow as tf", "import tf1ps.v1 as tf"),
  ("tf.train.Server", "tf1ps.Server"),
])
def test_a_mended_rule_is_quiet_where_the_name_comes_from_tf1ps(old, new):
  source = "import tf1ps\nimport tensorflow as tf\nserver = tf.train.Server({})\nserver.join()"
  assert doctor.find_all(read(source), [JOINS])
  assert not doctor.find_all(read(source.replace(old, new)), [JOINS])


def test_python2_is_read_by_a_mender():
  def convert(text):
    return "import tensorflow\n\n\nprint('a')", [1, 1, 1, 2]

  program = doctor.read_program("old.py", "import tensorflow\nprint 'a'", convert)
  assert program.is_python2 and program.place(last(program)) == (2, 1)


def test_no_python():
  with pytest.raises(doctor.UnreadableError, match="old.py:2: "):
    doctor.read_program("old.py", "x = 1\nprint 'a'")
  with pytest.raises(doctor.UnreadableError, match="old.py:1: "):
    doctor.read_program("old.py", "\x00", lambda text: (text, [1]))


def test_nodes_hold_every_call():
  program = read("f(g(h()))")
  assert sum(isinstance(node, ast.Call) for node in program.nodes) == 3
