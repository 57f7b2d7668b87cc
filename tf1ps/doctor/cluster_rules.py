"""Rules of cluster specs, of the environment and of the threads of servers."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import DIFFERS, TRAP, Rule

_LAST_PORT = 65535
_TOO_LATE = ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS", "TF_USE_LEGACY_KERAS")
_THREADS = ("inter_op_parallelism_threads", "intra_op_parallelism_threads")


def _wrong_specs(program):
  places = [(call, "cluster", 0) for call in program.calls("tf.train.ClusterSpec")]
  places += [(call, "server_or_cluster_def", 0) for call in program.calls("tf.train.Server")]
  for call, name, position in places:
    node = program.argument(call, name, position)
    if program.made_by(node) == "tf.train.ClusterSpec":
      continue  # the call of ClusterSpec has its own finding
    seen = set()
    for job, tasks in _tasks_of(program, node):
      for wrong in _wrong_tasks(job, tasks, seen):
        yield call, wrong


def _tasks_of(program, node):
  """Yields the jobs of a spec with their tasks, if the source or a flag shows them."""
  node = program.single_value(node) or node
  if isinstance(node, ast.Dict):
    for job, tasks in zip(node.keys, node.values):
      addresses = program.value_of(tasks, flags=True)
      if job is not None and isinstance(addresses, (str, list, tuple, dict)):
        yield program.value_of(job), addresses


def _text_indices(program):
  """Yields servers whose index is a text from the command line or the environment."""
  for call in program.calls("tf.train.Server"):
    index = program.argument(call, "task_index", 2)
    if index is not None and _is_text(program, index):
      yield call


def _is_text(program, node, depth=3):
  if isinstance(node, ast.Subscript):
    return program.name_of(node.value) in ("sys.argv", "os.environ") and not isinstance(
      node.slice, ast.Slice)
  if isinstance(node, ast.Call):
    return program.name_of(node.func) in ("os.environ.get", "os.getenv") and all(
      isinstance(program.value_of(argument), str) for argument in node.args)
  if isinstance(node, ast.Attribute) and _is_text_flag(program, node):
    return True
  value = program.single_value(node)
  return bool(depth and value is not None and _is_text(program, value, depth - 1))


def _is_text_flag(program, node):
  if (program.name_of(node.value) or "").endswith("flags.FLAGS"):
    makers = program.calls("tf.app.flags.DEFINE_string", "absl.flags.DEFINE_string")
    return any(program.value_of(program.argument(call, "name", 0)) == node.attr for call in makers)
  for call in program.method_calls("argparse.ArgumentParser", "add_argument"):
    names = [program.value_of(argument) for argument in call.args]
    if node.attr in names or "--" + node.attr in names:
      default = program.argument(call, "default")
      return (program.argument(call, "type") is None and program.argument(call, "action") is None
              and (default is None or isinstance(program.value_of(default), str)))
  return False


def _wrong_tasks(job, tasks, seen):
  if isinstance(tasks, str):
    yield "The tasks of job %r are a text, where a list of addresses belongs" % job
    return
  if not tasks:
    yield "Job %r has no task, and TensorFlow accepts that" % job
  if isinstance(tasks, dict) and any(isinstance(index, int) and index < 0 for index in tasks):
    yield "A task of job %r has a negative index, and TensorFlow accepts that" % job
  for address in tasks.values() if isinstance(tasks, dict) else tasks:
    port = str(address).rpartition(":")[2]
    if "://" in str(address) or ":" not in str(address) or not port.isdigit():
      yield "The address %r of job %r is not host:port" % (address, job)
    elif int(port) > _LAST_PORT:
      yield "A server of port %s listens on port %d instead" % (port, int(port) % (_LAST_PORT + 1))
    elif int(port) and address in seen:
      yield "Two tasks have the address %s, and TensorFlow accepts that" % address
    seen.add(address)


def _fail_fast(program):
  for name, value, node in texts.environment(program):
    if name == "GRPC_FAIL_FAST" and str(value).lower() in ("true", "1", ""):
      if value == "":
        yield node, "An empty GRPC_FAIL_FAST kills a process of TensorFlow 2"
      else:
        yield node


def _pings(program):
  for name, value, node in texts.environment(program):
    if name == "TF_GRPC_DEFAULT_OPTIONS" and "max_pings_without_data=0" in str(value):
      yield node


def _too_late(program):
  imports = [node.lineno for node, name in program.imports()
             if name.split(".")[0] in ("tensorflow", "tf1ps") and not name.startswith("tf1ps.c")
             and isinstance(program.parent(node), ast.Module)]
  for name, _, node in texts.environment(program):
    if name in _TOO_LATE and imports and program.enclosing(node, jobs.FUNCTIONS) is None:
      if node.lineno > min(imports):
        yield node, "TensorFlow has read %s at its import, further up" % name


def _negative_threads(program):
  for call in program.calls("tf.ConfigProto"):
    value = program.value_of(program.argument(call, _THREADS[0]))
    if isinstance(value, int) and value < 0:
      yield call


def _threads_of_sessions(program):
  of_servers = {program.call_of(program.argument(call, "config", 4))
                for call in program.calls("tf.train.Server")}
  for opening in jobs.sessions(program):
    config = program.call_of(opening.config)
    if config is None or config in of_servers or program.name_of(config.func) != "tf.ConfigProto":
      continue
    if any(program.argument(config, name) is not None for name in _THREADS):
      yield config


RULES = (
  Rule("wrong-cluster-spec", TRAP,
       "TensorFlow accepts this cluster, but its tasks cannot reach each other",
       "Give each task an address of its own, as host:port with a port below 65536.",
       "docs/cluster.md#describing-a-job", False, _wrong_specs),
  Rule("task-index-is-text", TRAP,
       "The index of this task is a string: TypeError",
       "Make it an int, for example with type=int or DEFINE_integer.",
       "docs/cluster.md#describing-a-job", False, _text_indices),
  Rule("grpc-fail-fast", TRAP,
       "With GRPC_FAIL_FAST a session retries without a pause while it waits for a task",
       "Leave GRPC_FAIL_FAST alone, or set use_caller.",
       "docs/cluster.md#waiting-with-a-limit", False, _fail_fast),
  Rule("grpc-pings-without-data", TRAP,
       "Pings without data make a server end long calls: \"Too many pings\"",
       "Set only grpc.keepalive_time_ms and grpc.keepalive_timeout_ms.",
       "docs/cluster.md#lost-and-found", False, _pings),
  Rule("environment-after-import", DIFFERS,
       "TensorFlow was imported above, and read this environment variable at that moment",
       "Set it before the import of TensorFlow.",
       "docs/legacy.md#the-one-import", False, _too_late),
  Rule("negative-threads", TRAP,
       "A negative inter_op_parallelism_threads kills a server's process",
       "Leave it out, or give a number above 0.",
       "docs/cluster.md#one-session-config", False, _negative_threads),
  Rule("threads-of-remote-session", DIFFERS,
       "The config of a session on a server does not change the server's threads",
       "Give this config to the Server.",
       "docs/cluster.md#one-session-config", False, _threads_of_sessions),
)
