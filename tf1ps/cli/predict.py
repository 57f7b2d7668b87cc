"""tf1ps-predict: uses what was trained; needs no cluster."""

from __future__ import annotations

import sys

from absl import flags

from tf1ps.cli import app
from tf1ps.cli import flags as flags_lib

FLAGS = flags.FLAGS
_SUMMARY = "writes a trained program's predictions to a file, or the program as a SavedModel."


def define() -> None:
  """Defines the flags."""
  flags_lib.define_program(needed=True)
  flags_lib.define_checkpoint_dir("Where the checkpoints are; the newest is used.")
  flags_lib.define("What to write", flags.DEFINE_string, "output", None,
                   "The file to write: .csv, .jsonl or .npz.")
  flags_lib.define("What to write", flags.DEFINE_string, "export_dir", None,
                   "The directory to write a SavedModel into.")
  flags_lib.define_output()


def run(argv) -> int:
  """Predicts; returns the exit code."""
  return app.run("tf1ps-predict", _SUMMARY, list(argv), define, _predict)


def _predict(program) -> int:
  if not FLAGS.checkpoint_dir:
    raise app.UsageError("--checkpoint_dir is missing: the directory of a finished job")
  if not (FLAGS.output or FLAGS.export_dir):
    raise app.UsageError("nothing to write: give --output, --export_dir, or both")
  app.prepare_tensorflow()
  from tf1ps.pipeline import bad_records
  from tf1ps.training import export, prediction

  app.open_devices()
  if FLAGS.output:
    bad = bad_records.BadRecords(FLAGS.on_bad_record, FLAGS.max_bad_ratio)
    outcome = prediction.predict(program, FLAGS.checkpoint_dir, FLAGS.output, FLAGS.batch_size,
                                 FLAGS.variables, bad=bad)
    print("%d predictions in %s" % (outcome.examples, FLAGS.output))
  if FLAGS.export_dir:
    export.export(program, FLAGS.checkpoint_dir, FLAGS.export_dir, FLAGS.variables)
    print("SavedModel in %s" % FLAGS.export_dir)
  return 0


def main() -> None:
  """The console script."""
  sys.exit(run(sys.argv[1:]))
