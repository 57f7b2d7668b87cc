"""Makes a fault of a small file happen around a whole job in this process, and says what was seen.

The first process of the chief is cut off behind its second checkpoint. Its state file and all files
beside it are then as a kill leaves them. The second process is started in the same way.
"""
from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import threading
from typing import List, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tests import harness
from tests.survival import metadata
from tests.training import line_program, local_job, local_server
from tf1ps.checkpoint import checkpoints
from tf1ps.compat import own_identity, worker_service
from tf1ps.pipeline import next_batch
from tf1ps.program import contract, evaluator, metric_goals
from tf1ps.state import MEMBER_DONE, MEMBER_TRAINING, RUN_RUNNING, RunFile, StopFile, containers
from tf1ps.state import heartbeat as heartbeat_lib

BATCH, RECORDS = 20, 400
LAST = 20  # the global step at the end of a job that loses nothing
CUT_AT = 13  # the step at which the first process ends
NOBODY = 65534  # a user
DEAD = "1-1-4026531836-0123456789ab-elsewhere"  # the identity of a process
LINE = contract.Program("line", line_program, line_program.input_fn, line_program.model_fn)
# The options of the job that reads a file. The first process of the last two ends after an epoch.
OPTIONS = {
  "state": dict(steps=LAST), "run": dict(steps=LAST), "stop": dict(steps=LAST),
  "examples": dict(examples=LAST * BATCH), "epochs": dict(epochs=2),
  "ranges": dict(epochs=2, shard="dynamic")}
# The global step at the end of a job without a fault, and how many more its limits may allow with
# the file of the checkpoint before. A batch is counted after the save that it is in.
ENDS = {"state": (LAST, 0), "run": (LAST, 0), "stop": (LAST, 0), "examples": (LAST + 1, 4),
        "epochs": (2 * LAST, LAST), "ranges": (2 * LAST, LAST)}
TEXTS = {  # another text of the right kind, for `other`
  "state": "a state file", "best": "a state file",
  "examples": '{"run": 5, "before": null, "examples": []}', "epochs": '{"epochs": {}}',
  "ranges": '{"digest": "", "count": "1", "next": 0, "again": 0, "back": [], "out": {}}',
  "stop": '{"run": {}, "reason": 5}', "memory": '{"evaluated": 5, "best": {}}',
  "run": '{"run": 5, "state": [], "global_step": "x", "time": 0, "process": {}}'}


class Cut(Exception):
  """Ends the first process of the chief."""


class Seen(NamedTuple):
  """What was seen in a cell."""
  error: Optional[Exception]  # that ended the second process
  begun: Optional[int]  # the global step with which the second process began
  ended: int  # the global step of the last checkpoint
  said: List[str]  # the lines of tf1ps's log in the second process
  is_ours: bool  # whether the run's file is of the second process


def make_folder() -> str:
  """Makes a folder that another user may enter, too."""
  import tempfile  # not pytest's, whose folders are their user's alone
  folder = tempfile.mkdtemp(prefix="tf1ps-metadata-")
  os.chmod(folder, 0o777)
  return folder


@contextlib.contextmanager
def another_user(folder):
  """Runs a block as another user, who owns a folder but for the files without any right."""
  if os.geteuid():
    yield
    return
  for place, folders, files in os.walk(folder):
    for path in [place, *(os.path.join(place, name) for name in folders + files)]:
      if os.stat(path).st_mode & 0o777:
        os.chown(path, NOBODY, -1)
  os.seteuid(NOBODY)
  try:
    yield
  finally:
    os.seteuid(0)


def forget(record):
  """Leaves the control records as those of a ps that was started again."""
  worker_service.cleanup_all(record.cluster.ps[0].address, [containers.CONTROL], 10.0)


def damage(path, fault, file):
  """Makes a fault of a file that is there."""
  with open(path, "rb") as opened:
    content = opened.read()
  if fault == "none":
    pass
  elif fault == "deleted":
    os.remove(path)
  elif fault == "foreign":
    os.chmod(path, 0)
  else:
    with open(path, "wb") as opened:
      opened.write({"empty": b"", "cut": content[:len(content) // 2],
                    "garbage": b"\xff\xfe\x00\x80" * 9, "other": TEXTS[file].encode()}[fault])


class Log(logging.Handler):
  """Keeps the lines of tf1ps's log."""

  def __enter__(self):
    self.lines: List[str] = []
    self._log = logging.getLogger("tf1ps")
    self._level = self._log.level
    self._log.setLevel(logging.INFO)
    self._log.addHandler(self)
    checkpoints._said.clear()  # a new process says all again
    return self

  def __exit__(self, *error):
    self._log.removeHandler(self)
    self._log.setLevel(self._level)

  def emit(self, record):
    self.lines.append(record.getMessage())


class Job(object):
  """The job of a cell whose file a chief reads."""

  def __init__(self, cell: metadata.Cell, folder: str):
    self._cell, self._folder = cell, folder
    self._options = dict(
      OPTIONS[cell.file], checkpoint_dir=folder, batch_size=BATCH, save_checkpoints="steps:4")
    self._workers = 2 if cell.moment == "members" else 1
    self._calls, self._cut = 0, False
    self._other: Optional[OtherJob] = None
    self.begun: Optional[int] = None

  def run(self) -> Seen:
    """Runs the cell to its end."""
    cell = self._cell
    record = local_job.record(workers=self._workers)
    forget(record)
    self._begin()
    with contextlib.ExitStack() as around:
      if cell.moment == "members":
        around.enter_context(Member(record, RunFile(self._folder).read().run))
      else:
        forget(record)
      self._damage()
      if cell.moment == "others":
        self._other = around.enter_context(OtherJob(self._folder))
      return self._go_on(around)

  def _begin(self):
    """The first process: it is killed, or for the files of epochs and ranges ends its part."""
    self._cut = self._cell.file not in ("epochs", "ranges")
    if not self._cut:
      self._train(epochs=1)
      return
    try:
      self._train()
    except tf.errors.OpError:
      pass
    status = RunFile(self._folder).read()
    assert status.may_resume, status
    with open(RunFile(self._folder).path, "w") as file:  # as a kill leaves it
      json.dump(dict(status._asdict(), state=RUN_RUNNING, reason="", may_resume=False,
                     process=DEAD), file)
    self._cut = False

  def _train(self, **options):
    self._calls = 0
    return local_job.train(input_fn=self._input, model_fn=self._model, workers=self._workers,
                           **dict(self._options, **options))

  def _input(self, mode, shard):
    """x in 0 to 1, y = 3 x + 2, of [batch]; the first process ends at a step of the training."""
    x = np.arange(RECORDS, dtype=np.float32) / RECORDS
    data = shard.dataset(tf.data.Dataset.from_tensor_slices((x, 3 * x + 2)))
    features, labels = next_batch(data.batch(shard.batch_size))
    if mode == "train" and self._cut:
      shape = features.shape
      features = tf.numpy_function(self._count, [features], tf.float32)
      features.set_shape(shape)
    return features, labels

  def _count(self, x):
    self._calls += 1
    if self._calls >= CUT_AT:
      raise Cut("the first process ends")
    return x

  def _model(self, features, labels, mode):
    if self._other is not None:  # it lives, so it writes before this chief's graph is built
      self._other.await_write()
    spec = local_job.line_model(features, labels, mode)
    if mode == "train":
      spec = spec._replace(hooks=[FirstStep(self)])
    return spec

  def path(self) -> str:
    """Returns the path of the cell's file, which is there."""
    name = {"state": "checkpoint", "run": RunFile.NAME, "stop": StopFile.NAME}.get(
      self._cell.file)
    if name is not None:
      return os.path.join(self._folder, name)
    return "%s.%s.json" % (tf.train.latest_checkpoint(self._folder), self._cell.file)

  def _damage(self):
    cell, path = self._cell, self.path()
    if cell.file == "stop":
      run = RunFile(self._folder).read().run
      StopFile(self._folder).write("before" if cell.fault == "older" else run, "enough")
    if cell.fault != "older":
      damage(path, cell.fault, cell.file)
    elif cell.file == "state":
      checkpoints.name_latest(self._folder, "model.ckpt-4")
    elif cell.file == "run":
      with open(path, "w") as file:
        json.dump({"run": "before", "state": "ended", "global_step": 2, "time": 1.0}, file)

  def _go_on(self, around) -> Seen:
    """The second process."""
    error = None
    log = around.enter_context(Log())
    if self._cell.fault == "foreign":
      around.enter_context(another_user(self._folder))
    self.begun = None
    try:
      self._train()
    except Exception as problem:
      error = problem
    around.close()
    ended = tf.train.latest_checkpoint(self._folder)
    status = RunFile(self._folder).read()
    return Seen(error, self.begun, int(ended.rpartition("-")[2]) if ended else 0, log.lines,
                status is not None and status.process == own_identity())


class FirstStep(tf.train.SessionRunHook):
  """Notes the global step with which a job's session begins."""

  def __init__(self, job):
    self._job = job

  def after_create_session(self, session, coord):
    if self._job.begun is None:
      self._job.begun = int(session.run(tf.train.get_global_step()))


class Member(harness.Repeated):
  """Worker 1 of a run: it trains until the chief trains, and has done its part then."""

  def __init__(self, record, run):
    super().__init__(0.1)
    self._record, self._run = record, run
    self._worker = local_server.Worker(record, 1)
    self._worker.say(run=run, state=MEMBER_TRAINING)

  def act(self):
    found = heartbeat_lib.members_of(
      local_server.table(self._record).read(), self._record.container)
    trains = any(one.role == "chief" and one.state == MEMBER_TRAINING for one in found)
    self._worker.say(state=MEMBER_DONE if trains else MEMBER_TRAINING)


class OtherJob(harness.Repeated):
  """A chief on another machine, which writes its run's file as a living chief does."""

  def __init__(self, folder):
    super().__init__(0.3)
    self._path, self._step = RunFile(folder).path, 0
    self._wrote = threading.Condition()

  def await_write(self):
    """Waits for a write that begins after the call."""
    with self._wrote:
      step = self._step + 1
      assert self._wrote.wait_for(lambda: self._step > step, timeout=60)

  def act(self):
    with self._wrote:
      self._step += 1
      self._wrote.notify_all()
    with open(self._path + ".other", "w") as file:
      json.dump({"run": "theirs", "state": RUN_RUNNING, "global_step": self._step, "time": 1.0,
                 "host": "elsewhere", "pid": 7, "process": DEAD}, file)
    try:
      os.replace(self._path + ".other", self._path)
    except OSError:  # as another user
      pass


class Evaluation(object):
  """An evaluator that keeps the best checkpoint, which is no more beside the newer ones."""

  def __init__(self, cell: metadata.Cell, folder: str):
    self._cell, self._folder = cell, folder

  def path(self) -> str:
    parts = ("best", "checkpoint") if self._cell.file == "best" else (
      "eval", "tf1ps-evaluator.json")
    return os.path.join(self._folder, *parts)

  def run(self) -> Seen:
    import pathlib
    folder, before = pathlib.Path(self._folder), None
    for step, off in ((1, 3.0), (2, 1.0), (3, 2.0)):
      line_program.save(folder, step, w=2.0, b=1.0 + off, keep=1)
      self._evaluate()
      if step == 1:
        before = open(self.path(), "rb").read()
    if self._cell.fault == "older":
      with open(self.path(), "wb") as file:
        file.write(before)
    else:
      damage(self.path(), self._cell.fault, self._cell.file)
    error = None
    with Log() as log, contextlib.ExitStack() as around:
      if self._cell.fault == "foreign":
        around.enter_context(another_user(self._folder))
      try:
        self._evaluate()
      except Exception as problem:
        error = problem
    best = checkpoints.named_in(os.path.join(self._folder, "best"))
    if best is not None:
      checkpoints.verify_checkpoint(best)
    return Seen(error, None if best is None else checkpoints.global_step_of_checkpoint(best), 0,
                log.lines, False)

  def _evaluate(self):
    return evaluator.follow_checkpoints(
      LINE, self._folder, 60, 60, 4, checkpoint="latest",
      keep_best=metric_goals.parse_metric_goal("loss"))


def see(cell: metadata.Cell) -> Seen:
  """Makes a cell happen."""
  folder = make_folder()
  try:
    return (Evaluation if cell.file in ("best", "memory") else Job)(cell, folder).run()
  finally:
    shutil.rmtree(folder)
