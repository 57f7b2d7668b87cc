"""Rules of sessions on servers: their start, recovery and use."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import TRAP, Rule
from tf1ps.doctor.program import UNKNOWN

_RECOVERY = 30  # seconds: the default of recovery_wait_secs
_INITIALISERS = ("tf.global_variables_initializer", "tf.initialize_all_variables")
_SECOND_RUN = ("If a run before it in the loop reaches the last step, this second run raises "
               "RuntimeError")
_NEW_FOLDERS = ("tempfile.mkdtemp", "tempfile.TemporaryDirectory")


def _openings(program):
  """Returns the sessions on a server of TensorFlow, in a program of several tasks."""
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
  """Yields sessions of workers that check the chief's initialisation only twice per minute."""
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
  """Yields calls that fail immediately, because their limit is below a worker's sleep time."""
  calls = [(call, "max_wait_secs", 12) for call in program.calls(jobs.TRAINING_SESSION)]
  calls += [(call, "max_wait_secs", 3) for call in program.method_calls(
    jobs.SUPERVISOR, "prepare_or_wait_for_session")]
  for call, name, position in calls:
    limit = program.value_of(program.argument(call, name, position), flags=True)
    if isinstance(limit, (int, float)) and limit < _recovery(program, call):
      yield call


def _recovery(program, call):
  maker = None
  if isinstance(call.func, ast.Attribute):
    maker = program.call_of(call.func.value)
  if maker is None or program.name_of(maker.func) != jobs.SUPERVISOR:
    return _RECOVERY
  node = program.argument(maker, "recovery_wait_secs", 13)
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
  """Yields sessions that every worker of between-graph replication opens as the chief."""
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
  return any(program.made_by(fetch) in _INITIALISERS for fetch in fetches)


def _operation_timeouts(program):
  """Yields configs with a time limit for all operations of sessions that train."""
  for opening in jobs.sessions(program):
    config = program.call_of(opening.config)
    if opening.is_training and config is not None:
      if program.argument(config, "operation_timeout_in_ms") is not None:
        yield config


def _threads(program):
  """Yields sessions that a thread's function opens on the graph of another thread."""
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
  """Yields `saver.save(session, ...)` with a monitored session."""
  for call in program.method_calls("tf.train.Saver", "save"):
    if call.args and program.made_by(call.args[0]) in (
        jobs.TRAINING_SESSION, "tf.train.MonitoredSession"):
      yield call


def _step_functions(program):
  """Yields calls of `run_step_fn` whose function has no argument step_context."""
  for call in program.method_calls(jobs.TRAINING_SESSION, "run_step_fn"):
    function = call.args[0] if call.args else None
    for bound in program.bindings(function) if function is not None else []:
      function = bound.statement if isinstance(bound.statement, jobs.FUNCTIONS) else bound.value
    if isinstance(function, jobs.FUNCTIONS + (ast.Lambda,)):
      if "step_context" not in [argument.arg for argument in function.args.args]:
        yield call


def _no_global_step(program):
  """Yields sessions that save, in a program that builds its updates without a global step."""
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
    if all(isinstance(program.value_of(period), (int, float)) for period in given):
      yield call


def _after_should_stop(program):
  """Yields runs of a monitored session after its loop, and second runs within the loop."""
  for loop in program.nodes:
    if not isinstance(loop, ast.While) or "should_stop" not in texts.words_of(loop.test):
      continue
    session = _asked_session(program, loop.test)
    if session is None:
      continue
    runs = [node for node in ast.walk(jobs.function_of(program, loop)) if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute) and node.func.attr == "run"
            and getattr(node.func.value, "id", "") == session]
    inside = {node for statement in loop.body for node in ast.walk(statement)}
    if not any(isinstance(node, ast.Break) for node in inside):
      yield from (run for run in runs if run not in inside and run.lineno > loop.lineno)
    if program.calls("tf.train.StopAtStepHook"):
      yield from ((run, _SECOND_RUN) for run in _second_runs(program, loop, runs))


def _asked_session(program, test):
  """Returns the name of the monitored session whose should_stop a loop calls, or None."""
  for node in ast.walk(test):
    if isinstance(node, ast.Attribute) and node.attr == "should_stop":
      if program.made_by(node.value) == jobs.TRAINING_SESSION:
        return getattr(node.value, "id", None)
  return None


def _second_runs(program, loop, runs):
  """Yields runs in a loop's body after another run, without `should_stop` between the two."""
  first = None
  for statement in loop.body:
    inside = set(ast.walk(statement))
    own = [run for run in runs if run in inside]
    if first is not None and "should_stop" not in texts.words_of(statement):
      yield from own
    first = first or (own[0] if own else None)


def _new_folders(program):
  if not jobs.task_servers(program):
    return
  for name, argument, position in ((jobs.TRAINING_SESSION, "checkpoint_dir", 2),
                                   (jobs.SUPERVISOR, "logdir", 7)):
    for call in program.calls(name):
      if program.made_by(program.argument(call, argument, position)) in _NEW_FOLDERS:
        yield call


def _error_texts(program):
  """Yields comparisons with the beginning of the text of TensorFlow's error."""
  for handler in program.nodes:
    if not isinstance(handler, ast.ExceptHandler) or not handler.name or handler.type is None:
      continue
    if not any((program.name_of(inner) or "").startswith("tf.errors.")
               for inner in ast.walk(handler.type)):
      continue
    for inner in ast.walk(handler):
      if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
        if inner.func.attr == "startswith" and handler.name in texts.words_of(
            inner.func.value).split():
          yield inner
      elif isinstance(inner, ast.Compare) and isinstance(inner.ops[0], (ast.Eq, ast.NotEq)):
        left = inner.left
        if isinstance(left, ast.Attribute) and left.attr == "message" and getattr(
            left.value, "id", "") == handler.name:
          yield inner


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
       "Without is_chief every worker is the chief, initialises the variables and saves",
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
       "docs/replication.md#in-graph-by-hand", False, _threads),
  Rule("saver-takes-no-monitored-session", TRAP,
       "A Saver cannot use a monitored session: TypeError",
       "Let the session save, or save in `run_step_fn`.",
       "docs/drop_in.md", False, _savers),
  Rule("step-function-argument", TRAP,
       "The function for `run_step_fn` must have one argument, step_context",
       "Rename its argument to step_context.",
       "docs/drop_in.md", False, _step_functions),
  Rule("session-without-global-step", TRAP,
       "A session that saves checkpoints needs a global step, and this program makes none",
       "Give the update global_step=tf.train.get_or_create_global_step().",
       "docs/drop_in.md#what-differs-from-stock", False, _no_global_step),
  Rule("checkpoint-secs-and-steps", TRAP,
       "save_checkpoint_secs together with save_checkpoint_steps raises ValueError",
       "Leave one of them out.",
       "docs/drop_in.md", False, _both_periods),
  Rule("run-after-should-stop", TRAP,
       "The session has ended after the loop: this run raises RuntimeError or never happens",
       "Fetch all in one run, or run it in a hook's `end`, such as tf.train.FinalOpsHook.",
       "docs/run.md#the-end", False, _after_should_stop),
  Rule("checkpoints-in-new-folder", TRAP,
       "Each start makes a new folder, so a restarted task finds no checkpoint",
       "Take the folder from a flag, the same for all tasks.",
       "docs/programs.md#checkpoints", False, _new_folders),
  Rule("error-text-begins", TRAP,
       "On TensorFlow 2, error messages begin with \"Graph execution error\"",
       "Compare types, or search inside the message.",
       "docs/run.md#a-run-has-an-identity", False, _error_texts),
)
