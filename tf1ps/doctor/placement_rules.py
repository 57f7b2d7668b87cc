"""Rules of placement: operations that are not on the task that their author expects."""

from __future__ import annotations

import ast
import re

from tf1ps.doctor import device_scopes, jobs, texts
from tf1ps.doctor.findings import DIFFERS, TRAP, Rule
from tf1ps.doctor.program import UNKNOWN

_STEPS = tuple(package + name for package in ("tf.train.", "tf.contrib.framework.",
                                              "tf.contrib.slim.", "tf_slim.")
               for name in ("get_or_create_global_step", "create_global_step"))
_VARIABLES = ("tf.Variable", "tf.get_variable")
_LAYERS = ("tf.layers.", "tf.contrib.layers.", "tf.contrib.slim.", "tf_slim.layers.")
_WITH_WEIGHTS = ("dense", "fully_connected", "conv1d", "conv2d", "conv3d", "conv2d_transpose",
                 "separable_conv2d", "batch_norm", "batch_normalization", "embed_sequence")
_PRODUCERS = {"tf.train.string_input_producer": 1, "tf.train.input_producer": 2,
              "tf.train.range_input_producer": 1, "tf.train.slice_input_producer": 1,
              "tf.train.limit_epochs": 1}
_LOCAL = ("tf.get_local_variable", "tf.contrib.framework.local_variable",
          "tf.contrib.slim.local_variable")
_LOCAL_KEYS = ("tf.GraphKeys.LOCAL_VARIABLES", "tf.GraphKeys.METRIC_VARIABLES")


def _global_steps(program):
  named = [call for call in program.calls(*_VARIABLES)
           if _name_of_variable(program, call) == "global_step"]
  yield from _unpinned(program, program.calls(*_STEPS) + named)


def _name_of_variable(program, call):
  is_class = program.name_of(call.func) == "tf.Variable"
  return program.value_of(program.argument(call, "name", 5 if is_class else 0))


def _variables(program):
  makers = [call for call in program.calls(*_VARIABLES)
           if _name_of_variable(program, call) != "global_step" and not _is_local(program, call)]
  makers += program.calls(*[package + name for package in _LAYERS for name in _WITH_WEIGHTS])
  yield from _unpinned(program, makers)


def _is_local(program, call):
  position = 2 if program.name_of(call.func) == "tf.Variable" else 6
  collections = program.argument(call, "collections", position)
  return collections is not None and (not isinstance(collections, (ast.List, ast.Tuple))
                                      or _has_local_key(program, collections))


def _unpinned(program, calls):
  """Yields the calls of a task outside of any scope that names a job, for sessions on servers."""
  if not calls or not jobs.task_servers(program) or not jobs.names_ps(program):
    return
  if not any(True for _ in jobs.sessions(program)):
    return
  ways_of, local = device_scopes.Ways(program), jobs.local_functions(program)
  for call in calls:
    ways = ways_of.to(call)
    if any(way.job_scope() is None and not local & set(way.functions) for way in ways):
      yield call


def _locals_on_ps(program):
  if not jobs.task_servers(program):
    return
  calls = [call for call in program.calls(*_PRODUCERS) if _counts(program, call)]
  calls += program.calls(*_LOCAL)
  calls += [call for call in program.calls(*_VARIABLES)
            if _has_local_key(program, program.argument(call, "collections"))]
  calls += program.calls_below("tf.metrics.")
  if not calls:
    return
  ways_of = device_scopes.Ways(program)
  for call in calls:
    scopes = [way.job_scope() for way in ways_of.to(call)]
    if any(scope and scope.kind == device_scopes.SETTER and not jobs.is_ours(program, scope.node)
           for scope in scopes):
      yield call


def _counts(program, call):
  epochs = program.argument(call, "num_epochs", _PRODUCERS[program.name_of(call.func)])
  return epochs is not None and program.value_of(epochs) is not None


def _has_local_key(program, node):
  return node is not None and any(program.name_of(inner) in _LOCAL_KEYS for inner in ast.walk(node)
                                  if isinstance(inner, ast.Attribute))


def _setters(program):
  for call in program.calls(jobs.SETTER):
    if not program.may_have_more(call):
      yield call


def _without_ps(program):
  for call in _setters(program):
    if program.argument(call, "cluster", 4) is None:
      tasks = program.argument(call, "ps_tasks", 0)
      if tasks is None or program.value_of(tasks) == 0:
        yield call


def _worker_texts(program):
  """Yields the setters of tasks, with the text of their worker_device."""
  if not jobs.task_servers(program):
    return
  for call in _setters(program):
    device = program.argument(call, "worker_device", 2)
    yield call, "/job:worker" if device is None else texts.text_of(program, device)


def _without_task(program):
  for call, text in _worker_texts(program):
    if text and re.search(r"/job:\w+", text) and "task:" not in text and "*" not in text:
      yield call


def _of_one_task(program):
  for call, text in _worker_texts(program):
    if text and re.search(r"/task:\d", text) and "*" not in text:
      if _number_of_workers(program, call) != 1:
        yield call


def _number_of_workers(program, setter):
  """Returns the number of workers in a setter's cluster; None if the source does not show it."""
  cluster = program.argument(setter, "cluster", 4)
  cluster = program.single_value(cluster) or cluster
  if program.made_by(cluster) == "tf.train.ClusterSpec":
    cluster = program.argument(program.call_of(cluster), "cluster", 0)
  if isinstance(cluster, ast.Dict):
    for job, tasks in zip(cluster.keys, cluster.values):
      if job is not None and program.value_of(job) == "worker":
        return len(tasks.elts) if isinstance(tasks, (ast.List, ast.Tuple)) else None
  return None


def _sparse_ps(program):
  for call in _setters(program):
    cluster = program.argument(call, "cluster", 4)
    maker = program.call_of(cluster)
    if maker is not None and program.name_of(maker.func) == "tf.train.ClusterSpec":
      cluster = program.argument(maker, "cluster", 0)
    spec = program.value_of(cluster)
    tasks = spec.get("ps") if isinstance(spec, dict) else None
    if isinstance(tasks, dict) and sorted(tasks) != list(range(len(tasks))):
      yield call, "The setter uses the tasks 0 to %d of the ps, which has the tasks %s" % (
        len(tasks) - 1, ", ".join(map(str, sorted(tasks))))


def _op_types(program):
  """Yields comparisons of an operation's type with an outdated type name."""
  for node in program.nodes:
    if (isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute)
        and node.left.attr == "type" and len(node.ops) == 1):
      value = program.value_of(node.comparators[0])
      many = value if isinstance(value, (list, tuple, set)) else [value]
      if "Variable" in many and "VarHandleOp" not in many and "VariableV2" not in many:
        yield node


def _hidden_devices(program):
  """Yields devices of a job that the session's device filters do not name."""
  configs = {program.call_of(opening.config) for opening in jobs.sessions(program)}
  config = configs.pop() if len(configs) == 1 else None
  filters = None if config is None else _list_of(
    program, program.argument(config, "device_filters"))
  if filters is None:
    return
  shown = [texts.text_of(program, device) for device in filters.elts]
  if None in shown or any(text.startswith("*") for text in shown):
    return
  for call in program.calls("tf.device"):
    node = program.argument(call, "device_name_or_function", 0)
    text = texts.text_of(program, node)
    job = re.match(r"/job:(\w+)(/task:(\d+|\*))?", text or "")
    if job and not any(_shows(text, job) for text in shown):
      yield call
    elif job and job.group(3) == "*" and _is_loops(program, node) and not any(
        text in ("/job:" + job.group(1), "/job:%s/" % job.group(1)) for text in shown):
      yield call


def _list_of(program, node):
  value = node if isinstance(node, (ast.List, ast.Tuple)) else program.single_value(node)
  return value if isinstance(value, (ast.List, ast.Tuple)) else None


def _shows(text, job):
  name, _, task = text.partition("/task:")
  if name.rstrip("/") != "/job:" + job.group(1):
    return "*" in name
  return not task or job.group(3) is None or "*" in (task, job.group(3)) or task == job.group(3)


def _is_loops(program, node):
  """Whether a text contains the variable of a loop, and so names several tasks."""
  return any(isinstance(bound.statement, ast.For) for inner in ast.walk(node)
             if isinstance(inner, ast.Name) for bound in program.bindings(inner))


def _tables(program):
  """Yields look-ups in partitioned tables, with the call of the partitioner or None."""
  for call in program.calls("tf.nn.embedding_lookup", "tf.nn.embedding_lookup_sparse"):
    table = program.call_of(program.argument(call, "params", 0))
    if table is not None and program.name_of(table.func) == "tf.get_variable":
      partitioner = program.argument(table, "partitioner", 8)
      if partitioner is None:
        partitioner = _partitioner_round(program, table)
      if partitioner is not None and program.value_of(partitioner) is not None:
        yield call, program.call_of(partitioner)


def _partitioner_round(program, node):
  scope = program.enclosing(node, (ast.With,))
  while scope is not None:
    for item in scope.items:
      call = item.context_expr
      if isinstance(call, ast.Call) and program.name_of(call.func) == "tf.variable_scope":
        partitioner = program.argument(call, "partitioner", 6)
        if partitioner is not None:
          return partitioner
    scope = program.enclosing(scope, (ast.With,))
  return None


def _mod_lookups(program):
  for call, _ in _tables(program):
    is_sparse = program.name_of(call.func).endswith("_sparse")
    strategy = program.argument(call, "partition_strategy", 3 if is_sparse else 2)
    if strategy is None or program.value_of(strategy) == "mod":
      yield call


def _column_lookups(program):
  for call, partitioner in _tables(program):
    if partitioner is not None:
      is_by_size = program.name_of(partitioner.func) == "tf.variable_axis_size_partitioner"
      axis = program.value_of(program.argument(partitioner, "axis", 3 if is_by_size else 1))
      if axis is not UNKNOWN and axis not in (0, None):
        yield call


RULES = (
  Rule("unpinned-global-step", TRAP,
       "No device names a task: on TensorFlow 2 each worker has its own global step",
       "Build it under the device setter, or under tf.device(\"/job:ps/task:0\").",
       "docs/legacy.md#what-is-replaced", True, _global_steps),
  Rule("unpinned-variable", TRAP,
       "No device names a task: on TensorFlow 2 each worker has its own variable",
       "Build it under the device setter, or under tf.device with a task of the ps.",
       "docs/legacy.md#what-is-replaced", True, _variables),
  Rule("local-variable-on-ps", TRAP,
       "The device setter puts this local variable on the ps, where all workers share it",
       "Use the setter of tf1ps, or build it under tf.device of the worker.",
       "docs/drop_in.md", True, _locals_on_ps),
  Rule("setter-without-ps", TRAP,
       "A device setter without `cluster` and `ps_tasks` is None, and places nothing",
       "Give it the cluster.",
       "docs/drop_in.md", False, _without_ps),
  Rule("worker-device-without-task", DIFFERS,
       "Without a task, operations run on worker 0 on 1.15, and on the session's worker on 2.x",
       "Give the setter worker_device=\"/job:worker/task:%d\" % task_index.",
       "docs/drop_in.md", False, _without_task),
  Rule("worker-device-of-one-task", TRAP,
       "All workers build their operations on the same worker",
       "Give the setter worker_device=\"/job:worker/task:%d\" % task_index.",
       "docs/drop_in.md", False, _of_one_task),
  Rule("setter-counts-ps", TRAP,
       "The setter counts the ps tasks and ignores their indices",
       "Use the setter of tf1ps, or number the tasks from 0.",
       "docs/drop_in.md", True, _sparse_ps),
  Rule("op-type-variable", DIFFERS,
       "No operation has the type Variable: the types are VariableV2 and VarHandleOp",
       "Compare with both of them.",
       "docs/drop_in.md", False, _op_types),
  Rule("filters-hide-device", TRAP,
       "The device filters hide a task that is used here: the session raises InvalidArgumentError",
       "Name in device_filters all tasks that the graph uses.",
       "docs/cluster.md#one-session-config", False, _hidden_devices),
  Rule("partitioned-lookup", TRAP,
       "get_variable partitions by \"div\", but this look-up uses \"mod\": it returns wrong rows",
       "Give the look-up partition_strategy=\"div\".",
       "docs/transfer.md#partitioned-tables", False, _mod_lookups),
  Rule("table-in-columns", TRAP,
       "The table is partitioned by columns: the look-up returns parts of rows, and no error",
       "Partition the table by its first axis.",
       "docs/transfer.md#partitioned-tables", False, _column_lookups),
)
