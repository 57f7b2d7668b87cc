"""What every test runs in: a quiet TensorFlow on the CPU, and a watch over processes left behind.

In order: before any test module (and so TensorFlow) is imported, the environment is set, for this
process and all that it starts. It carries a mark of this run. After the last test, whatever process
still carries the mark gets a minute to end, is then killed, and fails the run.
"""
from __future__ import annotations

import faulthandler
import gc
import json
import os
import pathlib
import signal
import sys
import threading
import time
import uuid

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Their tests run once: they read sources, or call nothing of TensorFlow.
ANY_TENSORFLOW = frozenset(
  ["conftest_test.py", "docs_test.py", "flaky/repeat_test.py", "flaky/second_try_test.py",
   "layers_test.py", "links_test.py", "locked_versions_test.py",
   "readme_test.py", "surface_test.py", "cluster/signals_test.py", "compat/exit_codes_test.py",
   "compat/json_lines_test.py",
   "examples/checking_test.py", "examples/contents_test.py",
   "monitoring/chrome_trace_test.py",
   "monitoring/trace_summary_test.py",
   "launch/output_test.py", "launch/ports_test.py", "launch/task_main_test.py",
   "pipeline/lease_table_test.py", "training/options_test.py"]
  + ["benchmarks/%s_test.py" % name for name in (
    "charts", "input_csv", "interleaving", "jobs", "legacy_programs", "links", "main",
    "queue_timeout", "rows", "scaling_model", "staleness", "systems")])
# Their tests, except for the slow ones, leave out TensorFlow's graph optimizer: they are about
# sessions, hooks, files and options. See `graphs_as_they_are`.
UNOPTIMIZED = frozenset([
  "checkpoint", "coordinator", "monitoring", "pipeline", "program", "session", "state", "survival",
  "training", "launch/in_process_test.py", "placement/partitioning_test.py",
  "replication/clocks_test.py", "replication/sync_hook_test.py"])
MARK = "TF1PS_TEST_SESSION"
GRACE = 60  # seconds that a process may still take to end after the last test

# What passes while a test waits is about a tenth of what users get (tf1ps/compat/timing.py). Limits
# that only a fault reaches stay, as this machine may be busy.
TIMING = {
  "poll_interval": 0.05, "fast_poll_interval": 0.03, "local_poll_interval": 0.02,
  "call_poll_interval": 0.1, "retry_pause": 0.05, "restart_pause": 0.1, "longest_retry_pause": 0.5,
  "heartbeat_interval": 0.25, "lost_check_interval": 0.5, "range_report_interval": 0.1,
  "first_report": 0.2, "report_interval": 0.4, "global_step_interval": 0.2,
  "status_interval": 0.5, "linger": 1.0, "leave_limit": 1.0, "step_vote_limit_after_signal": 0.5,
  "thread_end_limit": 0.5, "session_close_limit": 1.0, "run_session_close_limit": 0.5,
  "probe_limit": 1.0, "watch_probe_limit": 0.5,
}

os.environ[MARK] = uuid.uuid4().hex
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
# TensorFlow logs as it does for users: what it logs, it also appends to the errors of later steps.
os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
for name, value in (
    ("TF_ENABLE_ONEDNN_OPTS", "0"),  # else a line of noise, and other last digits
    ("OPENBLAS_NUM_THREADS", "1"),  # numpy's threads spin while they have no work
    ("CUDA_VISIBLE_DEVICES", "-1"),
    ("TF1PS_TIMING", json.dumps(TIMING)),
):
  os.environ.setdefault(name, value)

if os.environ["CUDA_VISIBLE_DEVICES"] != "-1":  # many processes are on the GPU at once
  os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

# With TensorFlow Keras imports matplotlib, where it is there: a seventh of the time. What a test
# imports later is imported.
sys.modules.setdefault("matplotlib", None)

# Imports and graphs are no garbage: to look for some after every 700 objects, as Python does, takes
# a tenth of the time.
gc.set_threshold(50000, 5, 5)


# Under nohup, or in a shell's background, one is ignored here and in all that is started, and tests
# of signals would wait for ever.
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
  if signal.getsignal(number) == signal.SIG_IGN and (
      threading.current_thread() is threading.main_thread()):
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def left_behind():
  """Returns {process id: command line} of the live processes that this run started.

  A process shows the environment that it was executed with, and hands it on when it forks. One that
  has ended shows none. Python's own helpers of multiprocessing, which end together with the process
  that started them, do not count while that is this one.
  """
  mark = "{}={}".format(MARK, os.environ[MARK]).encode()
  found = {}
  for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
      if mark not in (folder / "environ").read_bytes().split(b"\0"):
        continue
      command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
      parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it ended meanwhile, or belongs to somebody else
      continue
    if not ("from multiprocessing." in command and parent == os.getpid()):
      found[int(folder.name)] = command.strip()
  return found


def path_of(item):
  """The path of a test's file below tests/."""
  name = item.nodeid.partition("::")[0]
  if name not in _paths:
    _paths[name] = os.path.relpath(str(item.fspath), str(ROOT / "tests"))
  return _paths[name]


_paths = {}  # by the name in a test's id: pytest takes a while for a path


def pytest_collection_modifyitems(items):
  """Marks the tests that show nothing of TensorFlow's version, and begins with those of v1."""
  for item in items:
    if path_of(item) in ANY_TENSORFLOW:
      item.add_marker(pytest.mark.any_tensorflow)
  # One process of pytest-xdist begins with those of v1, and mostly no other takes them: only that
  # process imports tf.estimator.
  items.sort(key=lambda item: os.path.dirname(path_of(item)) != "v1")


def pytest_collectstart():
  """Switches Python's garbage collector off while modules of tests are imported."""
  gc.disable()


def pytest_collection_finish():
  """Has Python's garbage collector pass over all that was imported: to look at it takes a while."""
  # It chooses another Keras for the whole process, and so for all tests of it.
  assert "tf1ps.v1" not in sys.modules, "a module of tests imports tf1ps.v1: do it in a task"
  gc.freeze()
  gc.enable()
  if sys.modules.get("matplotlib", "") is None:
    del sys.modules["matplotlib"]


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure():
  """Spares the end of a process pytest's five passes of the garbage collector over all objects."""
  gc.freeze()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
  """Shows what the processes of a failed test have printed."""
  report = (yield).get_result()
  if report.failed:
    report.sections += [("Output of " + task.name, task.output) for task in getattr(
      item.funcargs.get("start"), "tasks", [])]


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind():
  """Fails the run when a process that a test started is still there after the last one."""
  yield
  pause = threading.Event()
  until = time.monotonic() + GRACE
  while left_behind() and time.monotonic() < until:
    pause.wait(0.1)
  found = left_behind()
  for process in found:
    try:
      os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
      pass
  assert not found, "the tests left processes behind (killed now):\n" + "\n".join(
      "{}: {}".format(*item) for item in sorted(found.items()))


@pytest.fixture(autouse=True)
def slow_tests_are_not_looked_at(request):
  """Switches off, for tests with limits of their own, the stacks that come before the common one.

  To print those of threads that run may end the process: it is for a test that hangs.
  """
  if request.node.get_closest_marker("slow"):
    faulthandler.cancel_dump_traceback_later()


# Its import sets this variable where the user has no home, and any later test has it.
_OF_MATPLOTLIB = "MPLCONFIGDIR"


def changed_names(before, after, imported):
  """The variables that a test has changed, given the environments before and after it.

  Args:
    before: {name: value}.
    after: the same.
    imported: whether the test is the first to import TensorFlow. The import writes new variables,
      which any later test has.
  """
  changed = {name for name in before.keys() | after.keys()
             if before.get(name) != after.get(name)} - {"PYTEST_CURRENT_TEST", _OF_MATPLOTLIB}
  return changed & before.keys() if imported else changed


@pytest.fixture(autouse=True)
def the_environment_stays():
  """Fails a test that leaves another environment to the tests after it, in whatever order they run.

  A test that calls `monkeypatch.setenv` first may run code that sets the variable.
  """
  before, had = dict(os.environ), "tensorflow" in sys.modules
  yield
  changed = changed_names(before, dict(os.environ), not had and "tensorflow" in sys.modules)
  for name in changed:
    os.environ.pop(name, None)
    if name in before:
      os.environ[name] = before[name]
  assert not changed, "the test leaves changed: %s" % ", ".join(sorted(changed))


@pytest.fixture(autouse=True)
def no_server_is_known():
  """Has this process forget a server that a test made, so that tests may run in any order.

  A process with a server of ours puts what is shared by its name onto that server's ps.
  """
  yield
  if "tf1ps.cluster.server" in sys.modules:
    sys.modules["tf1ps.cluster.server"]._records.clear()


@pytest.fixture(autouse=True)
def tensorflow_stays():
  """Has each test begin with the control flow and the variables that TensorFlow's import chooses.

  A test that switches them, as programs do, would change what the tests after it build.
  """
  tf = sys.modules.get("tensorflow.compat.v1")
  if tf is not None:
    has_v2, is_resource = tf.control_flow_v2_enabled(), tf.resource_variables_enabled()
  yield
  if tf is not None:
    (tf.enable_control_flow_v2 if has_v2 else tf.disable_control_flow_v2)()
    (tf.enable_resource_variables if is_resource else tf.disable_resource_variables)()


@pytest.fixture
def control_flow_of_programs():
  """Has a test build branches as the programs do: only such branches may have ref variables."""
  import tensorflow.compat.v1 as tf

  tf.disable_control_flow_v2()


@pytest.fixture
def set_timing(monkeypatch):
  """Changes, for one test, fields of the `TIMING` that a module of this process uses."""
  return lambda module, **fields: monkeypatch.setattr(
    module, "TIMING", module.TIMING._replace(**fields))


@pytest.fixture
def graphs_as_they_are():
  """Has the sessions of this process leave out TensorFlow's graph optimizer.

  It takes longer than the few runs of a test. That it leaves our graphs intact is shown by the
  tests whose processes train, and by most slow ones: their sessions have it.
  """
  import tensorflow.compat.v1 as tf

  create = tf.Session.__init__

  def create_without(self, target="", graph=None, config=None):
    own = tf.ConfigProto()
    if config is not None:
      own.CopyFrom(config)
    own.graph_options.rewrite_options.disable_meta_optimizer = True
    create(self, target, graph, own)

  # The fixture `monkeypatch` would begin before others, and then end after them.
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(tf.Session, "__init__", create_without)
    yield


@pytest.fixture(autouse=True)
def fast_graphs_as_they_are(request):
  """Does so for the tests of UNOPTIMIZED that are not slow."""
  path = path_of(request.node)
  if ((path in UNOPTIMIZED or os.path.dirname(path) in UNOPTIMIZED)
      and "tensorflow" in sys.modules and not request.node.get_closest_marker("slow")):
    request.getfixturevalue("graphs_as_they_are")


@pytest.fixture(scope="session")
def common_forks(nothing_left_behind):
  """The process, with TensorFlow imported, that tests' processes are forked from."""
  from tests import harness

  with harness.Forks() as shared:
    yield shared


@pytest.fixture(scope="session")
def forks(common_forks):
  """The same; a folder of tests may have one of its own, with more modules."""
  return common_forks


@pytest.fixture
def start(forks):
  """Starts processes for one test, and kills what is left of them when it ends."""
  with forks.starts() as start_one:
    yield start_one


@pytest.fixture(scope="module")
def ps(forks):
  """A stock ps, one for the tests of a file; returns its task."""
  from tests import cluster_tasks  # late: it imports TensorFlow

  with cluster_tasks.stock_ps(forks, 1) as tasks:
    yield tasks[0]
