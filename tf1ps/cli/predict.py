"""tf1ps-predict: predicts with a trained program, or exports it; needs no cluster."""

from __future__ import annotations

import os

from absl import flags

from tf1ps.cli import app
from tf1ps.program import check_checkpoint, check_given, check_input, check_output
from tf1ps.training import first_batch_size

FLAGS = flags.FLAGS
_SUMMARY = "writes a trained program's predictions to a file, or the program as a SavedModel."


def run(argv) -> int:
  """Predicts; returns the exit code."""
  return app.run("predict", _SUMMARY, list(argv), _predict, check=_check)


def _writes_file() -> bool:
  return bool(os.path.splitext(FLAGS.output)[1])


def _check() -> None:
  check_given(FLAGS.checkpoint_dir, FLAGS.checkpoint)
  if not FLAGS.output:
    raise app.UsageError("nothing to write: give --output, a file or a directory")
  if FLAGS.input and not _writes_file():
    raise app.UsageError("--input=%s: a SavedModel has no predictions. Give --output a file, such "
                         "as y.csv" % FLAGS.input)
  if _writes_file():
    check_output(FLAGS.output)
  if FLAGS.input:
    check_input(FLAGS.input, FLAGS.on_bad_record)
  check_checkpoint(FLAGS.checkpoint_dir, FLAGS.checkpoint)


def _predict(program) -> int:
  app.prepare_tensorflow()
  from tf1ps.program import export, predict

  app.open_devices()
  if _writes_file():
    outcome = predict(
      program, FLAGS.checkpoint_dir, checkpoint=FLAGS.checkpoint, input=FLAGS.input,
      output=FLAGS.output, batch_size=first_batch_size(FLAGS.batch_size),
      on_bad_record=FLAGS.on_bad_record)
    print("%d predictions in %s" % (outcome.examples, FLAGS.output))
  else:
    export(program, FLAGS.checkpoint_dir, checkpoint=FLAGS.checkpoint, output=FLAGS.output)
    print("SavedModel in %s" % FLAGS.output)
  return 0
