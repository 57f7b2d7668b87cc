"""tf1ps-predict: predicts with a trained program, or exports it; needs no cluster."""

from __future__ import annotations

import sys

from absl import flags

from tf1ps.cli import app
from tf1ps.training import first_batch_size, parse_bad_record_policy

FLAGS = flags.FLAGS
_SUMMARY = "writes a trained program's predictions to a file, or the program as a SavedModel."


def run(argv) -> int:
  """Predicts; returns the exit code."""
  return app.run("predict", _SUMMARY, list(argv), _predict)


def _predict(program) -> int:
  if not (FLAGS.checkpoint_dir or FLAGS.checkpoint):
    raise app.UsageError("--checkpoint_dir is missing: the directory of a finished job")
  if not (FLAGS.output or FLAGS.export_dir):
    raise app.UsageError("nothing to write: give --output, --export_dir, or both")
  app.prepare_tensorflow()
  from tf1ps.pipeline import BadRecords
  from tf1ps.program import export_saved_model, predict

  app.open_devices()
  if FLAGS.output:
    bad = BadRecords(*parse_bad_record_policy(FLAGS.on_bad_record))
    outcome = predict(program, FLAGS.checkpoint_dir, FLAGS.output,
                      first_batch_size(FLAGS.batch_size), FLAGS.variables,
                      FLAGS.checkpoint, bad=bad)
    print("%d predictions in %s" % (outcome.examples, FLAGS.output))
  if FLAGS.export_dir:
    export_saved_model(program, FLAGS.checkpoint_dir, FLAGS.export_dir, FLAGS.variables,
                       FLAGS.checkpoint)
    print("SavedModel in %s" % FLAGS.export_dir)
  return 0


def main() -> None:
  """The console script."""
  sys.exit(run(sys.argv[1:]))
