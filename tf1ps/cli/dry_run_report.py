"""tf1ps-local --dry_run: makes a program's step in this process, and says what the flags mean."""

from __future__ import annotations

import time
from typing import List

from absl import flags

from tf1ps.cli import app, errors
from tf1ps.compat import EXIT_FAILED
from tf1ps.training import ALL_REDUCE, IN_GRAPH, first_batch_size, parse_optimizer

FLAGS = flags.FLAGS
_MOST = 10  # variables that are listed, the largest first


def run(path: str, options, num_ps: int, has_end: bool = True) -> int:
  """Makes the step, prints its report or its error, and returns the exit code.

  Args:
    path: the program, as --program has it.
    options: the job's `Options`.
    num_ps: the number of the job's ps.
    has_end: whether the flags of the job say when the job ends.
  """
  program, began = None, time.monotonic()
  try:
    program = app.load(path, FLAGS.verbosity)
    app.prepare_tensorflow()
    from tf1ps.training import make_dry_run

    app.open_devices()
    report = make_dry_run(program, options, num_ps, FLAGS.num_workers)
  except Exception as error:  # as a worker reports it
    errors.show_traceback(error, program, always=app.is_verbose())
    app.last_line("dry run: " + errors.line(error, program), EXIT_FAILED)
    return EXIT_FAILED
  for name, text in report.inputs.items():
    print("input: %s: %s" % (name, text))
  _print_variables(report.variables)
  print("loss: %g, of the first batch" % report.loss)
  for line in _meaning(options, num_ps, report.has_own_update, has_end):
    print(line)
  app.last_line("dry run: ok, %.1f s; nothing was written" % (time.monotonic() - began), 0)
  return 0


def _print_variables(variables) -> None:
  from tf1ps.transfer import format_bytes

  sizes = [(variable.shape.num_elements() or 0, variable) for variable in variables]
  sizes.sort(key=lambda pair: -pair[0])
  print("variables: %d, %d values, %s" % (
    len(sizes), sum(values for values, _ in sizes),
    format_bytes(sum(values * variable.dtype.size for values, variable in sizes))))
  for _, variable in sizes[:_MOST]:
    print("  %s %s %s" % (
      variable.op.name, variable.dtype.base_dtype.name, variable.shape.as_list()))
  if len(sizes) > _MOST:
    print("  and %d more" % (len(sizes) - _MOST))


def _meaning(options, num_ps: int, has_own_update: bool, has_end: bool) -> List[str]:
  """Returns the lines that say what the flags of the job mean."""
  count, batch = FLAGS.num_workers, first_batch_size(options.batch_size)
  batch *= options.gradient_accumulation_steps
  workers = "1 worker" if count == 1 else "%d workers" % count
  if options.replication == ALL_REDUCE:
    scheme = "each of %s keeps the variables, without a ps" % workers
  else:
    scheme = "%s on the variables of %d ps" % (workers, num_ps)
    if options.replication == IN_GRAPH:
      scheme += ", in one graph, which worker 0 runs"
  gradients = (options.replicas_to_aggregate or count) if options.is_synchronous else 1
  update = "an update is the mean of the gradients of %d workers, %d examples" % (
    gradients, gradients * batch)
  if not options.is_synchronous:
    update = "each worker updates on its own, by %d examples" % batch
  optimizer = "the program's own"
  if not has_own_update:
    optimizer = "%s, learning rate %s" % (
      options.optimizer, options.learning_rate or parse_optimizer(options.optimizer).learning_rate)
  ends = ["--%s=%d" % (name, getattr(options, name)) for name in ("steps", "epochs", "examples")
          if has_end and getattr(options, name)]
  return [
    "replication: %s: %s" % (options.replication, scheme), "updates: " + update,
    "optimizer: " + optimizer, "end: " + (
      " or ".join(ends) or "none yet: give --steps, --epochs or --examples"), "checkpoints: " + (
      "%s, %s" % (options.checkpoint_dir, options.save_checkpoints) if options.checkpoint_dir
      else "none are kept: give --checkpoint_dir")]
