from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import numpy
import pytest

from tests import docs_test, program_tasks
from tests.cli import commands, task_test
from tests.cluster.resolvers_test import slurm
from tf1ps.cli import run
from tf1ps.version import __version__


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
  """Writes a program's files and runs one in this process; returns the exit code and the output."""
  monkeypatch.chdir(str(tmp_path))
  monkeypatch.setattr(sys, "path", list(sys.path))
  monkeypatch.setattr(sys, "argv", list(sys.argv))
  monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
  monkeypatch.setenv("TF_CONFIG", "")  # so that it is as before afterwards: a scheduler's is set
  monkeypatch.delenv("TF_CONFIG")
  before = set(sys.modules)

  def run_files(*argv, **files):
    for name, text in files.items():
      (tmp_path / (name + ".py")).write_text(text)
    code = run.run(argv)
    return (code, *capsys.readouterr())

  yield run_files
  for name in set(sys.modules) - before:
    if os.path.dirname(getattr(sys.modules[name], "__file__", None) or "") == str(tmp_path):
      del sys.modules[name]


def test_flags_behind_the_file_belong_to_the_program(call, tmp_path):
  source = "import sys\nprint(sys.argv, sys.path[0], __name__)\nimport near"
  code, out, err = call("train.py", "--print", "--task_index=0", "-m", train=source,
                        near="print(__name__)")
  assert (code, err) == (0, "")
  argv = ["train.py", "--print", "--task_index=0", "-m"]
  assert out == "%s %s __main__\nnear\n" % (argv, tmp_path)
  code, out, _ = call("-m", "train", "--log_dir=a")
  argv = [str(tmp_path / "train.py"), "--log_dir=a"]
  assert (code, out) == (0, "%s %s __main__\n" % (argv, tmp_path))  # near is imported already


@pytest.mark.parametrize("end, expected, said", [
    ("", 0, ""), ("sys.exit()", 0, ""), ("sys.exit(0)", 0, ""), ("sys.exit(3)", 3, ""),
    ("sys.exit(True)", 1, ""), ("sys.exit('no data')", 1, "no data\n"), ("sys.exit(143)", 143, ""),
    ("raise KeyboardInterrupt", 128 + signal.SIGINT, None), ("1 / 0", 1, None)])
def test_the_exit_code_is_the_programs(call, end, expected, said):
  code, out, err = call("train.py", train="import sys\nprint('done')\n" + end)
  assert (code, out) == (expected, "done\n")
  assert said is None or err == said


OPENS = """
import sys
from tf1ps.session import process_end

class Session(process_end.Endable):
  def end_with_process(self, error):
    print("ended after", repr(error))
    if error is None and %s:
      raise RuntimeError("worker 1 failed")

process_end.register(Session())
"""


@pytest.mark.parametrize("end, fails, expected, told, said", [
    ("", False, 0, "None", ""), ("sys.exit(0)", False, 0, "None", ""),
    ("", True, 1, "None", "tf1ps-run: worker 1 failed\n"),
    ("sys.exit(4)", True, 4, "SystemExit(4", ""), ("{}[1]", True, 1, "KeyError(1", None)])
def test_what_the_program_leaves_open_is_ended(call, end, fails, expected, told, said):
  code, out, err = call("train.py", train=OPENS % fails + end)
  assert code == expected and out.startswith("ended after " + told)
  assert said is None or err == said


def test_an_error_shows_the_programs_own_lines(call, tmp_path):
  code, out, err = call("train.py", train="import near\n\nnear.fail()",
                        near="def fail():\n  raise ValueError('mine')")
  lines = [line for line in err.splitlines() if "^" not in line]
  assert (code, out) == (1, "") and lines == [
    "Traceback (most recent call last):",
    '  File "%s", line 3, in <module>' % (tmp_path / "train.py"), "    near.fail()",
    '  File "%s", line 2, in fail' % (tmp_path / "near.py"), "    raise ValueError('mine')",
    "ValueError: mine"]


def test_an_error_of_tf1ps_shows_the_programs_lines_alone(call, tmp_path):
  code, _, err = call("train.py", train="from tf1ps import program\nprogram.load_program('no.py')")
  lines = [line for line in err.splitlines() if "^" not in line]
  assert code == 1 and lines[1:3] == [
    '  File "%s", line 2, in <module>' % (tmp_path / "train.py"),
    "    program.load_program('no.py')"]
  assert "no.py does not exist" in lines[-1] and "tf1ps/" not in err


def test_an_error_of_the_cluster_is_one_line_with_the_programs_place(call):
  code, _, err = call("train.py", train=(
    "from tf1ps import cluster\n\ndef main():\n"
    "  cluster.wait_for_names([cluster.Task('ps', 0, 'no-such-host.invalid:1')], 0.0)\n\nmain()"))
  assert code == 1 and err.startswith("tf1ps-run: train.py:4 in main: UnknownHostError: "), err
  assert err.count("\n") == 1 and "no-such-host.invalid" in err


def test_a_flag_that_the_program_ignores_is_named(call):
  code, out, err = call("train.py", "--lerning_rate=0.3", "--alsologtostderr", train=(
    "import argparse\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--learning_rate', default=1)\nprint(parser.parse_known_args()[0])"))
  assert (code, out) == (0, "Namespace(learning_rate=1)\n")
  assert err == ("tf1ps-run: no file of the program has a flag --lerning_rate, so it is ignored; "
                 "did you mean --learning_rate?\n")


def test_a_flag_that_absl_reads_is_not_called_ignored(start, tmp_path):
  (tmp_path / "my.flags").write_text("--rate=3\n")
  (tmp_path / "train.py").write_text(
    "import tensorflow.compat.v1 as tf\ntf.app.flags.DEFINE_integer('rate', 1, '')\n"
    "def main(_):\n  print(tf.app.flags.FLAGS.rate)\ntf.app.run()")
  task = start("train", program_tasks.run_program, "tf1ps-run",
               ["train.py", "--flagfile=%s" % (tmp_path / "my.flags")], tmp_path)
  assert task.wait() == 0, task.output
  assert task.lines[-1] == "3" and "ignored" not in task.output


def test_a_file_that_is_not_there_names_the_nearest(call):
  code, _, err = call("trian.py", train="open('near.yp')", near="")
  assert (code, err) == (1, "tf1ps-run: the file trian.py does not exist; did you mean train.py?\n")
  code, _, err = call("train.py")
  assert code == 1 and err.endswith("tf1ps-run: did you mean near.py?\n")


def test_an_error_of_python_2_names_the_flag_for_it(call):
  hint = "tf1ps-run: this looks like Python 2: tf1ps-run --2to3 converts it while it runs\n"
  for source in "print 'a'", "xrange(3)", "import near":
    code, _, err = call("train.py", train=source, near="print 'near'")
    assert code == 1 and err.endswith(hint) and "tf1ps/" not in err.replace(hint, "")
  code, _, err = call("train.py", train="print('a'")
  assert code == 1 and "SyntaxError" in err and hint not in err


def test_an_error_of_numpy_says_what_to_do(call):
  code, _, err = call("train.py", train="import numpy as np\nnp.int\nnp.asarray([[1], [1, 2]]).f")
  assert code == 1 and (err.endswith("write np.array(rows, dtype=object)\n")
                        or hasattr(numpy, "int"))  # older than NumPy 1.24


def test_the_flag_for_python_2_is_not_named_to_who_has_given_it(call):
  code, _, err = call("--2to3", "train.py", train="isinstance(1, file)")
  assert code == 1 and "NameError: name 'file'" in err and "like Python 2" not in err


def test_python_2_is_mended_in_memory(call, tmp_path):
  code, out, err = call("--2to3", "train.py", train="import near\nprint 'train', near.half(3)",
                        near="def half(a):\n  print 'near',\n  return a / 2")
  assert (code, out) == (0, "near train 1.5\n")
  assert err == (
    "near.py:3: `/` keeps the fraction in Python 3: write // where integers are divided\n")
  assert (tmp_path / "train.py").read_text() == "import near\nprint 'train', near.half(3)"


def test_print_shows_what_would_be_replaced_and_runs_nothing(call):
  files = dict(train="import tensorflow as tf\nimport near, far\nraise SystemExit(7)",
               near="def late():\n  from tensorflow.contrib import slim",
               far="print 'far', 1 / 2", unused="import tensorflow")
  code, out, err = call("--print", "train.py", "--steps=1", **files)
  assert (code, err) == (1, "") and out.splitlines()[:2] == [
    "train.py:1: import tensorflow as tf -> import tf1ps.v1 as tf",
    "near.py:2: from tensorflow.contrib import slim -> from tf1ps.v1.contrib import slim"]
  assert out.splitlines()[2].startswith("far.py:1: SyntaxError: Missing parentheses")
  assert out.endswith("this looks like Python 2: tf1ps-run --2to3 converts it while it runs\n")
  code, out, err = call("--print", "--2to3", "-m", "train")
  assert (code, err) == (0, "") and out.splitlines()[2:] == [
    "far.py:1: print 'far', 1 / 2 -> print('far', 1 / 2)",
    "far.py:1: `/` keeps the fraction in Python 3: write // where integers are divided",
    "variables and gradients of fewer than 524288 bytes travel together (TF1PS_PACK_BYTES=0 sends "
    "each alone)"]


@pytest.mark.parametrize("value, said", [
  ("0", "variables and gradients of every size travel alone (TF1PS_PACK_BYTES=0)"),
  ("64k", "TF1PS_PACK_BYTES must be a number of bytes, 0 (nothing is packed) or more, got '64k'")])
def test_print_says_what_the_environment_has_packed(call, monkeypatch, value, said):
  monkeypatch.setenv("TF1PS_PACK_BYTES", value)
  code, out, err = call("--print", "train.py", train="import tensorflow")
  assert said in (err if value == "64k" else out) and (code == 0) == (value == "0")
  assert "Traceback" not in err


@pytest.mark.parametrize("argv, said", [
    ([], "the program's file is missing (see tf1ps-run --help)"),
    (["--2to3"], "the program's file is missing (see tf1ps-run --help)"),
    (["-m"], "the module's name after -m is missing (see tf1ps-run --help)"),
    (["absent.py"], "the file absent.py does not exist"),
    (["-m", "absent"], "the module absent does not exist, or its package lacks __main__"),
    (["-m", "absent", "--lr=0.1"],
     "the module absent does not exist, or its package lacks __main__"),
    (["--prin", "train.py"], "--prin is not a flag; did you mean --print? "
     "(see tf1ps-run --help)"),
    (["--2to3=x"], "--2to3=x is not a flag; did you mean --2to3? (see tf1ps-run --help)"),
    (["--cluster_resolver"], "--cluster_resolver needs a value, as --cluster_resolver=VALUE (see "
     "tf1ps-run --help)"),
    (["--num_ps=2"], "--num_ps needs --cluster_resolver")])
def test_a_command_line_that_cannot_be_right(call, argv, said):
  assert call(*argv) == (1, "", "tf1ps-run: %s\n" % said)


BEFORE_1_0 = """
import numpy as np
import tensorflow as tf
from tensorflow.contrib import graph_editor
from tensorflow.python.ops import control_flow_ops
from tensorflow.python.training import training_ops
tf.app.flags.DEFINE_string("log_dir", "", "absl has one as well.")

def main(argv):
  logits, labels = tf.constant([[1., 2.]]), tf.constant([[0., 1.]])
  loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(logits, labels))
  loss = control_flow_ops.cond(loss > np.float(0), lambda: loss, lambda: -loss)
  assert callable(training_ops.apply_adam)
  with tf.Session() as session:
    print("loss %.4f in %s" % (session.run(loss), tf.app.flags.FLAGS.log_dir))

if __name__ == "__main__":
  tf.app.run()
"""


@pytest.mark.parametrize("flags, expected, said", [
    (["--pre_1_0"], 0, "loss 0.3133 in here"), ([], 1, "tf1ps-run --pre_1_0")])
def test_a_program_from_before_1_0(start, tmp_path, flags, expected, said):
  (tmp_path / "train.py").write_text(BEFORE_1_0)
  code, lines = commands.run(
    start, "tf1ps-run", *flags, "train.py", "--log_dir=here", folder=tmp_path)
  assert code == expected and said in "\n".join(lines)


def test_help_and_version(call):
  code, out, _ = call("--help")
  assert code == 0 and max(map(len, out.splitlines())) <= 100
  assert all("  " + name in out for name, _ in run._FLAGS)
  assert call("-h") == (0, out, "") and call("--print", "--help", "x.py") == (0, out, "")
  assert call("--version") == (0, "tf1ps-run %s\n" % __version__, "")


def test_the_script_of_a_checkout(tmp_path):
  """The script's own folder is not on the program's path; the program gets Python's handlers."""
  (tmp_path / "tf1ps_ps.py").write_text("print('the program')")
  (tmp_path / "train.py").write_text(
    "import signal, sys, tf1ps_ps\nassert sys.path[0] == %r\n"
    "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\nsys.exit(5)" % str(tmp_path))
  done = subprocess.run([sys.executable, str(commands.ROOT / "bin" / "tf1ps_run.py"), "train.py"],
                        cwd=str(tmp_path), stdout=subprocess.PIPE)
  assert (done.returncode, done.stdout) == (5, b"the program\n")


# Under a scheduler.

SHOWS_ARGUMENTS = "import os, sys\nprint(sys.argv[1:], os.environ['TF_CONFIG'])\n"


def test_a_program_under_a_scheduler(call, monkeypatch):
  for name, value in slurm(3).items():
    monkeypatch.setenv(name, value)
  monkeypatch.setenv("TF_CONFIG", "")
  waited = []
  monkeypatch.setattr(run, "wait_for_names", lambda tasks, limit: waited.extend(tasks))
  code, out, err = call(
    "--cluster_resolver=auto", "--num_ps=2", "--port=7000", "show.py", "--ps={ps_hosts}", "{other}",
    "{job_name}/{task_index}", "--workers", "{worker_hosts}", "--chief={chief_hosts}",
    show=SHOWS_ARGUMENTS)
  assert code == 0
  assert out.startswith(str([
    "--ps=node1:7000,node1:7001", "{other}", "worker/1", "--workers",
    "node2:7000,node2:7001,node3:7000,node3:7001", "--chief="]))
  config = json.loads(out[out.index("{\"cluster"):])
  assert config["task"] == {"type": "worker", "index": 0}  # estimators count from the chief
  assert config["cluster"]["chief"] == ["node2:7000"]
  assert [each.name for each in waited] == [
    "/job:worker/task:1", "/job:ps/task:0", "/job:ps/task:1"]
  assert err.splitlines()[0].startswith("tf1ps-run: --cluster_resolver=auto found slurm, by SLURM_")
  assert err.splitlines()[1].endswith(
    "this task: /job:worker/task:1 (chief is /job:worker/task:0), from Slurm")


def test_the_tf_config_of_a_scheduler_stays(call, monkeypatch):
  config = '{"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "worker", "index": 0}}'
  monkeypatch.setenv("TF_CONFIG", config)
  code, out, _ = call("--cluster_resolver=tf_config", "show.py", show=SHOWS_ARGUMENTS)
  assert (code, out) == (0, "[] %s\n" % config)


@pytest.mark.parametrize("argv, said", [
  (["--cluster_resolver=auto"], "--cluster_resolver=auto found neither TF_CONFIG nor the variables "
   "of a JobSet, of an Indexed Job or of a step of Slurm"),
  (["--cluster_resolver=flags"], "--cluster_resolver must be one of auto, tf_config, slurm, "
   "jobset, indexed_job, volcano, got flags"),
  (["--cluster_resolver=slurm", "--port=x"], "--port=x: give a number"),
  (["--cluster_resolver=slurm"], "--cluster_resolver=slurm: SLURM_STEP_NUM_TASKS is missing in the "
   "environment: start every task with srun, which sets it")])
def test_a_scheduler_that_is_not_there(call, argv, said):
  assert call(*argv, "show.py", show=SHOWS_ARGUMENTS) == (1, "", "tf1ps-run: %s\n" % said)


@pytest.mark.slow
def test_the_legacy_job_of_the_page_under_slurm(start):
  words, = [words for words in docs_test.of_program("docs/legacy.md", "srun")
            if "tf1ps-run" in words]
  at = words.index("trainer.py")
  argv = words[words.index("tf1ps-run") + 1:at] + [
    "--port=%d" % task_test.neighbours(3), "examples/legacy_trainer.py", *words[at + 1:],
    "--steps=300"]
  tasks = [start("rank %d" % rank, program_tasks.run_program, "tf1ps-run", argv, commands.ROOT,
                 TF_CONFIG=None,
                 **slurm(rank, nodes="127.0.0.1", per_node="3", tasks=3, place=(0, rank)))
           for rank in range(3)]
  for each in tasks:
    assert each.wait() == 0, each.output
  assert "worker 1: step" in tasks[2].output


def test_a_host_that_is_not_known(call, monkeypatch):
  for name, value in slurm(0, nodes="no-such-host.invalid", per_node="6").items():
    monkeypatch.setenv(name, value)
  monkeypatch.setattr(run, "START_TIMEOUT", 0.1)
  code, out, err = call("--cluster_resolver=slurm", "show.py", show=SHOWS_ARGUMENTS)
  assert (code, out) == (1, "")
  assert "the name no-such-host.invalid is not known after" in err
