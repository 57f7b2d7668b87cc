"""Rules of the end: programs that never end, and values that are lost at the end."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import TRAP, Rule

_CHECKPOINTS = ("tf.train.latest_checkpoint", "tf.train.get_checkpoint_state",
                "tf.contrib.training.wait_for_new_checkpoint")
_LEAVES = (ast.Break, ast.Return, ast.Raise)
_EXITS = {"sys.exit", "os._exit", "exit"}


def _signal_handlers(program):
  if any(not jobs.is_ours(program, call)
         for call in program.method_calls("tf.train.Server", "join")):
    yield from program.calls("signal.signal")


def _deleted_servers(program):
  for node in program.nodes:
    for target in node.targets if isinstance(node, ast.Delete) else ():
      if isinstance(target, ast.Name) and any(
          program.name_of(getattr(binding.value, "func", None)) == "tf.train.Server"
          for binding in program.bindings(target)):
        yield target


def _last_steps(program):
  """Yields Supervisors of programs that never save by themselves."""
  saves = any(isinstance(node, ast.Attribute) and node.attr == "save" for node in program.nodes)
  for call in program.calls(jobs.SUPERVISOR):
    folder = program.argument(call, "logdir", 7)
    if not saves and folder is not None and program.value_of(folder) is not None:
      saver = program.argument(call, "saver", 9)
      if not program.may_have_more(call) and (
          saver is None or program.value_of(saver) is not None):
        yield call


def _waits(program):
  """Yields loops that poll until the variables are initialised."""
  for loop in _loops(program):
    called = {program.name_of(inner.func) for inner in _calls_in(loop)}
    made = {program.made_by(inner) for inner in ast.walk(loop) if isinstance(inner, ast.Name)}
    if {"tf.report_uninitialized_variables", "time.sleep"} <= called | made:
      if not any(isinstance(inner, ast.Raise) for inner in ast.walk(loop)) and not called & {
          "time.time", "time.monotonic"}:
        yield loop


def _endless_evaluators(program):
  for loop in _loops(program):
    names = {program.name_of(inner.func) for inner in _calls_in(loop)}
    if program.value_of(loop.test) in (True, 1) and names & set(_CHECKPOINTS):
      if not any(isinstance(inner, _LEAVES) for inner in ast.walk(loop)) and not names & _EXITS:
        yield loop


def _ps_loops(program):
  """Yields endless loops that only a ps runs."""
  for loop in _loops(program) if jobs.task_servers(program) else ():
    names = {program.name_of(inner.func) or getattr(inner.func, "id", "")
             for inner in _calls_in(loop)}
    if program.value_of(loop.test) in (True, 1) and not names & _EXITS:
      if not any(isinstance(inner, _LEAVES) for inner in ast.walk(loop)) and jobs.is_on_ps(
          program, loop, jobs.function_of(program, loop)):
        yield loop


def _loops(program):
  return [node for node in program.nodes if isinstance(node, ast.While)]


def _calls_in(node):
  return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def _steps_that_stand(program):
  """Yields updates that do not count steps, in programs that stop at a number of steps."""
  waits = program.calls("tf.train.StopAtStepHook")
  updates = [call for call in program.attribute_calls("minimize", "apply_gradients")
             if (program.made_by(call.func.value) or "").startswith("tf.train.")]
  counted = texts.mentions(program, "assign_add", "create_train_op", "optimize_loss")
  if waits and updates and not counted and not any(
      program.argument(call, "global_step", 1) is not None or program.may_have_more(call)
      for call in updates):
    yield from updates


RULES = (
  Rule("signal-handler-never-runs", TRAP,
       "Python runs no signal handler during `join`: SIGTERM ends the ps, SIGINT does nothing",
       "Use the Server of tf1ps, whose `join` reacts to signals.",
       "docs/run.md#signals", False, _signal_handlers),
  Rule("server-cannot-be-stopped", TRAP,
       "A server listens on its port until its process ends, even after you delete the object",
       "End the process, or use the server for the next session.",
       "docs/run.md#the-end", False, _deleted_servers),
  Rule("last-steps-not-saved", TRAP,
       "A Supervisor saves every save_model_secs and never at the end: the last steps are lost",
       "Use the Supervisor of tf1ps, or save before the session is closed.",
       "docs/drop_in.md#a-supervisor", True, _last_steps),
  Rule("ps-loop-never-ends", TRAP,
       "This loop keeps the ps after the end of the job, until you kill it",
       "Call server.join() of tf1ps in its place.",
       "docs/run.md#the-end", True, _ps_loops),
  Rule("wait-without-limit", TRAP,
       "This loop waits without a limit for a chief that may never start",
       "Add a time limit, or use MonitoredTrainingSession of tf1ps.",
       "docs/cluster.md#waiting-with-a-limit", False, _waits),
  Rule("evaluator-never-ends", TRAP,
       "This loop looks for checkpoints forever, even after training has ended",
       "End the loop after the last step's checkpoint, or when no new checkpoint comes.",
       "docs/run.md#the-end", False, _endless_evaluators),
  Rule("global-step-stands-still", TRAP,
       "This update does not count steps, so StopAtStepHook never stops the loop",
       "Give it global_step=tf.train.get_or_create_global_step().",
       "docs/programs.md#when-training-stops", False, _steps_that_stand),
)
