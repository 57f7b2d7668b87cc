"""Rules of sessions on servers: how they start, recover and are used."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import TRAP, Rule
from tf1ps.doctor.program import UNKNOWN

_RECOVERY = 30  # seconds: the default of recovery_wait_secs
_INITIALISERS = ("tf.global_variables_initializer", "tf.initialize_all_variables")
_NEW_FOLDERS = ("tempfile.mkdtemp", "tempfile.TemporaryDirectory")


def _openings(program):
  """Sessions on a server of TensorFlow, in a program that is one task of several."""
  is_task = jobs.has_stock_server(program) and jobs.names_ps(program)
  return list(jobs.sessions(program)) if is_task else []


def _without_limits(program):
  is_filtered = texts.mentions(program, "device_filters")
  for opening in _openings(program):
    if is_filtered:
      yield opening.call, "If a ps is gone, the close of this session waits for it for ever"
    else:
      yield opening.call


def _long_sleeps(program):
  """Workers that look for the chief's initialisation twice per minute."""
  has_chief = texts.mentions(program, "is_chief")
  for opening in _openings(program):
    if program.name_of(opening.call.func) == jobs.TRAINING_SESSION and has_chief:
      yield opening.call
  if not _openings(program):
    return
  for call in program.calls(jobs.SUPERVISOR):
    if program.argument(call, "recovery_wait_secs", 13) is None and has_chief:
      if not program.may_have_more(call):
        yield call


def _short_waits(program):
  """Limits below the time that a worker sleeps: they fail at once."""
  calls = [(call, "max_wait_secs", 12) for call in program.calls(jobs.TRAINING_SESSION)]
  calls += [(call, "max_wait_secs", 3) for call in program.method_calls(
    jobs.SUPERVISOR, "prepare_or_wait_for_session")]
  for call, name, position in calls:
    limit = program.value_of(program.argument(call, name, position), flags=True)
    if isinstance(limit, (int, float)) and limit < _recovery(program, call):
      yield call


def _recovery(program, call):
  made = None
  if isinstance(call.func, ast.Attribute):
    made = program.call_of(call.func.value)
  if made is None or program.name_of(made.func) != jobs.SUPERVISOR:
    return _RECOVERY
  node = program.argument(made, "recovery_wait_secs", 13)
  value = program.value_of(node, flags=True)
  return _RECOVERY if node is None else 0 if value is UNKNOWN else value


def _chief_restarts(program):
  openings = _openings(program)
  for opening in openings:
    if opening.is_training and texts.mentions(program, "is_chief"):
      yield opening.call
  calls = {opening.call for opening in openings}
  for call in program.method_calls("tf.Session", "run"):
    if program.call_of(call.func.value) in calls and call.args and _initialises(program, call):
      if not jobs.under_condition(program, call, ("init", "restore", "checkpoint", "ckpt")):
        yield call, "A client that comes back initialises the variables of the whole job anew"


def _all_are_chiefs(program):
  """Sessions that every worker of between-graph replication opens as the chief."""
  if not _openings(program) or not any(
      "*" in (texts.text_of(program, program.argument(call, "worker_device", 2)) or "")
      for call in program.calls(jobs.SETTER)):
    return
  openings = {opening.call for opening in jobs.sessions(program)}
  for name, position in [(jobs.TRAINING_SESSION, 1), (jobs.SUPERVISOR, 3)] + [
      (name, None) for name in jobs.LEARNING]:
    for call in program.calls(name):
      if (program.argument(call, "is_chief", position) is None and not program.may_have_more(call)
          and (call in openings or name == jobs.SUPERVISOR)
          and not jobs.under_condition(program, call, ("chief", "index", "task", "rank"))):
        yield call


def _initialises(program, call):
  fetches = call.args[0].elts if isinstance(call.args[0], (ast.List, ast.Tuple)) else call.args[:1]
  return any(program.made_by(each) in _INITIALISERS for each in fetches)


def _operation_timeouts(program):
  """Time limits for all operations of sessions that train."""
  for opening in jobs.sessions(program):
    config = program.call_of(opening.config)
    if opening.is_training and config is not None:
      if program.argument(config, "operation_timeout_in_ms") is not None:
        yield config


def _threads(program):
  """Sessions that a thread's function opens on the graph of another thread."""
  for call in program.calls("threading.Thread"):
    target = program.argument(call, "target", 1)
    for bound in program.bindings(target) if target is not None else []:
      if isinstance(bound.statement, jobs.FUNCTIONS):
        yield from _sessions_without_graph(program, bound.statement)


def _sessions_without_graph(program, function):
  inside = set(ast.walk(function))
  calls = [node for node in inside if isinstance(node, ast.Call)]
  builds = any(isinstance(call.func, ast.Attribute) and call.func.attr == "as_default"
               for call in calls)
  own = ("tf.Session", "tf.ConfigProto", "tf.RunOptions", "tf.GPUOptions")
  for call in calls:
    name = program.name_of(call.func) or ""
    builds |= name.startswith("tf.") and name not in own and not name.startswith("tf.logging.")
    builds |= any(isinstance(bound.statement, jobs.FUNCTIONS)
                  for bound in program.bindings(call.func))
  for call in calls:
    if program.name_of(call.func) == "tf.Session" and not builds:
      if program.argument(call, "graph", 1) is None:
        yield call


def _savers(program):
  """`saver.save(session, ...)` with a monitored session."""
  for call in program.nodes:
    if (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        and call.func.attr == "save" and call.args
        and program.made_by(call.func.value) == "tf.train.Saver"
        and program.made_by(call.args[0]) in (jobs.TRAINING_SESSION, "tf.train.MonitoredSession")):
      yield call


def _step_functions(program):
  """Functions for `run_step_fn` that name their argument otherwise than it asks for."""
  for call in program.method_calls(jobs.TRAINING_SESSION, "run_step_fn"):
    function = call.args[0] if call.args else None
    for bound in program.bindings(function) if function is not None else []:
      function = bound.statement if isinstance(bound.statement, jobs.FUNCTIONS) else bound.value
    if isinstance(function, jobs.FUNCTIONS + (ast.Lambda,)):
      if "step_context" not in [each.arg for each in function.args.args]:
        yield call


def _no_global_step(program):
  """Sessions that shall save, in a program that builds its updates without a global step."""
  if program.mentions("global_step") or not texts.mentions(program, "minimize", "apply_gradients"):
    return
  for call in program.calls(jobs.TRAINING_SESSION):
    folder = program.argument(call, "checkpoint_dir", 2)
    if folder is not None and program.value_of(folder) is not None:
      yield call


def _both_periods(program):
  for call in program.calls(jobs.TRAINING_SESSION):
    given = [program.argument(call, "save_checkpoint_secs", 6),
             program.argument(call, "save_checkpoint_steps", 13)]
    if all(isinstance(program.value_of(each), (int, float)) for each in given):
      yield call


def _after_the_loop(program):
  """Runs that stand behind the loop, inside of the block of a monitored session."""
  for call in program.calls(jobs.TRAINING_SESSION):
    item = program.parent(call)
    name = getattr(getattr(item, "optional_vars", None), "id", None)
    if not isinstance(item, ast.withitem) or name is None:
      continue
    body = program.parent(item).body
    loops = [index for index, node in enumerate(body)
             if isinstance(node, ast.While) and "should_stop" in texts.words_of(node.test)]
    if not loops or any(isinstance(each, ast.Break) for each in ast.walk(body[loops[-1]])):
      continue
    for node in body[loops[-1] + 1:]:
      for each in ast.walk(node):
        if (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
            and each.func.attr == "run" and getattr(each.func.value, "id", "") == name):
          yield each


def _new_folders(program):
  if not jobs.task_servers(program):
    return
  for name, argument, position in ((jobs.TRAINING_SESSION, "checkpoint_dir", 2),
                                   (jobs.SUPERVISOR, "logdir", 7)):
    for call in program.calls(name):
      if program.made_by(program.argument(call, argument, position)) in _NEW_FOLDERS:
        yield call


def _error_texts(program):
  """Comparisons of how the text of TensorFlow's error begins."""
  for handler in program.nodes:
    if not isinstance(handler, ast.ExceptHandler) or not handler.name or handler.type is None:
      continue
    if not any((program.name_of(each) or "").startswith("tf.errors.")
               for each in ast.walk(handler.type)):
      continue
    for each in ast.walk(handler):
      if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
        if each.func.attr == "startswith" and handler.name in texts.words_of(
            each.func.value).split():
          yield each
      elif isinstance(each, ast.Compare) and isinstance(each.ops[0], (ast.Eq, ast.NotEq)):
        left = each.left
        if isinstance(left, ast.Attribute) and left.attr == "message" and getattr(
            left.value, "id", "") == handler.name:
          yield each


RULES = (
  Rule("session-without-limit", TRAP,
       "This waits forever for a task that is missing, and close() for a ps that has died",
       "Use the sessions of tf1ps, or name in device_filters the tasks that the graph uses.",
       "docs/cluster.md#waiting-with-a-limit", True, _without_limits),
  Rule("worker-sleeps-30-seconds", TRAP,
       "A worker that starts before the chief has initialised sleeps for 30 seconds",
       "Use the sessions of tf1ps; a Supervisor also takes recovery_wait_secs=1.",
       "docs/cluster.md#waiting-with-a-limit", True, _long_sleeps),
  Rule("wait-shorter-than-sleep", TRAP,
       "A worker sleeps 30 seconds between two looks; a smaller max_wait_secs fails at once",
       "Pass 30 or more, or pass recovery_wait_secs=1 to a Supervisor.",
       "docs/cluster.md#waiting-with-a-limit", True, _short_waits),
  Rule("every-worker-is-chief", TRAP,
       "Without is_chief every worker is the chief: each one initialises the variables and saves",
       "Give it is_chief=(task_index == 0).",
       "docs/drop_in.md", True, _all_are_chiefs),
  Rule("chief-restart-goes-back", TRAP,
       "When the chief restarts, the whole job goes back to its last checkpoint or to the start",
       "Use the sessions of tf1ps, which keep the live variables on the ps.",
       "docs/run.md#a-run-has-an-identity", True, _chief_restarts),
  Rule("operation-timeout-ends-training", TRAP,
       "With operation_timeout_in_ms a short pause of a ps ends every worker",
       "Pass tf.RunOptions(timeout_in_ms=...) to single runs, but not to a dequeue: it loses "
       "elements.",
       "docs/run.md#a-run-has-an-identity", False, _operation_timeouts),
  Rule("session-in-thread", TRAP,
       "Each thread has its own default graph: this session has an empty graph",
       "Pass graph= to the session.",
       "docs/in_graph.md#asynchronous-a-thread-for-each-replica", False, _threads),
  Rule("saver-takes-no-monitored-session", TRAP,
       "A Saver cannot use a monitored session: TypeError",
       "Let the session save, or save in `run_step_fn`.",
       "docs/drop_in.md", False, _savers),
  Rule("step-function-argument", TRAP,
       "The function for `run_step_fn` must have one argument, step_context",
       "Rename its argument to step_context.",
       "docs/drop_in.md", False, _step_functions),
  Rule("session-without-global-step", TRAP,
       "A session that saves checkpoints needs a global step, and nothing here makes one",
       "Give the update global_step=tf.train.get_or_create_global_step().",
       "docs/drop_in.md#what-differs-from-stock", False, _no_global_step),
  Rule("checkpoint-secs-and-steps", TRAP,
       "save_checkpoint_secs together with save_checkpoint_steps raises ValueError",
       "Pass only one of them.",
       "docs/drop_in.md", False, _both_periods),
  Rule("run-after-should-stop", TRAP,
       "The session has ended after the loop: this run raises RuntimeError or never happens",
       "Run it in a hook's `end`, such as tf.train.FinalOpsHook.",
       "docs/run.md#the-end", False, _after_the_loop),
  Rule("checkpoints-in-new-folder", TRAP,
       "Each start makes a new folder, so a restarted task finds no checkpoint",
       "Take the folder from a flag, the same one for all tasks.",
       "docs/programs.md#checkpoints", False, _new_folders),
  Rule("error-text-begins", TRAP,
       "On TensorFlow 2, error messages begin with \"Graph execution error\"",
       "Compare types, or search inside the message.",
       "docs/run.md#a-run-has-an-identity", False, _error_texts),
)
