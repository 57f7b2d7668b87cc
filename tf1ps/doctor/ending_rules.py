"""Rules of the end: what never ends, and what is lost when a program does."""

from __future__ import annotations

import ast

from tf1ps.doctor import jobs, texts
from tf1ps.doctor.findings import TRAP, Rule

_SLEEPS = ("time.sleep",)
_CHECKPOINTS = ("tf.train.latest_checkpoint", "tf.train.get_checkpoint_state",
                "tf.contrib.training.wait_for_new_checkpoint")
_LEAVES = (ast.Break, ast.Return, ast.Raise)


def _signal_handlers(program):
  if any(not jobs.is_ours(program, call)
         for call in program.method_calls("tf.train.Server", "join")):
    yield from program.calls("signal.signal")


def _deleted_servers(program):
  for node in program.nodes:
    if isinstance(node, ast.Delete):
      for target in node.targets:
        if isinstance(target, ast.Name) and _is_server(program, target):
          yield target


def _is_server(program, name):
  return any(isinstance(each.value, ast.Call)
             and program.name_of(each.value.func) == "tf.train.Server"
             for each in program.bindings(name))


def _last_steps(program):
  """Supervisors of programs that never save by themselves."""
  saves = any(isinstance(node, ast.Attribute) and node.attr == "save" for node in program.nodes)
  for call in program.calls(jobs.SUPERVISOR):
    folder = program.argument(call, "logdir", 7)
    if not saves and folder is not None and program.value_of(folder) is not None:
      if not _gives_none(program, call, "saver", 9) and not program.may_have_more(call):
        yield call


def _gives_none(program, call, name, position):
  node = program.argument(call, name, position)
  return node is not None and program.value_of(node) is None


def _waits(program):
  """Loops that look until the variables are initialised."""
  for loop in _loops(program):
    names = {program.name_of(each.func) for each in _calls_in(loop)}
    names |= {program.made_by(each) for each in ast.walk(loop) if isinstance(each, ast.Name)}
    if "tf.report_uninitialized_variables" in names and names & set(_SLEEPS):
      if not any(isinstance(each, ast.Raise) for each in ast.walk(loop)) and not _has_clock(
          program, loop):
        yield loop


def _endless_evaluators(program):
  for loop in _loops(program):
    names = {program.name_of(each.func) for each in _calls_in(loop)}
    if program.value_of(loop.test) in (True, 1) and names & set(_CHECKPOINTS):
      if not any(isinstance(each, _LEAVES) for each in ast.walk(loop)) and not any(
          name in ("sys.exit", "os._exit", "exit") for name in names):
        yield loop


def _loops(program):
  return [node for node in program.nodes if isinstance(node, ast.While)]


def _calls_in(node):
  return [each for each in ast.walk(node) if isinstance(each, ast.Call)]


def _has_clock(program, loop):
  return any(program.name_of(each.func) in ("time.time", "time.monotonic")
             for each in _calls_in(loop))


def _steps_that_stand(program):
  """Updates that do not count steps, in programs that wait for a number of steps."""
  waits = any(True for _ in program.calls("tf.train.StopAtStepHook"))
  updates = [call for call in program.nodes if isinstance(call, ast.Call)
             and isinstance(call.func, ast.Attribute)
             and call.func.attr in ("minimize", "apply_gradients")
             and (program.made_by(call.func.value) or "").startswith("tf.train.")]
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
  Rule("wait-without-limit", TRAP,
       "This loop waits without a limit for a chief that may never start",
       "Add a time limit, or use MonitoredTrainingSession of tf1ps.",
       "docs/cluster.md#waiting-with-a-limit", False, _waits),
  Rule("evaluator-never-ends", TRAP,
       "This loop looks for checkpoints forever, even after training has ended",
       "End the loop after the last step's checkpoint, or when no new one comes.",
       "docs/run.md#the-end", False, _endless_evaluators),
  Rule("global-step-stands-still", TRAP,
       "This update does not count steps, so StopAtStepHook never stops the loop",
       "Give it global_step=tf.train.get_or_create_global_step().",
       "docs/programs.md#when-training-stops", False, _steps_that_stand),
)
