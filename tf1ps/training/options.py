"""What the flags say of training: the same values in every worker of a job."""

from __future__ import annotations

from typing import NamedTuple, Optional


class Options(NamedTuple):
  """What the flags say of training; the same in every worker of a job."""

  checkpoint_dir: Optional[str] = None  # None: nothing is kept
  steps: Optional[int] = None  # the global step at which the job ends
  epochs: Optional[int] = None  # how often the data are gone through, over all workers
  examples: Optional[int] = None  # trained on, over all workers
  batch_size: int = 32  # of one worker
  optimizer: str = "adam"
  learning_rate: Optional[float] = None  # None: the optimizer's default
  variables: str = "resource"  # or "ref"
  shard: Optional[str] = None  # "files", "records", "none"; None: as the program asks
  ps_strategy: str = "greedy"  # or "round_robin"
  save_checkpoint_secs: Optional[float] = 600.0
  save_checkpoint_steps: Optional[int] = None  # instead of the seconds
  keep_checkpoints: int = 5
  save_summaries_steps: int = 100
  start_timeout: float = 60.0
  end_timeout: float = 300.0
  config: object = None  # the sessions' tf.ConfigProto


def check_options(options: Options) -> None:
  """Refuses options that cannot work together; raises ValueError."""
  for name in ("steps", "epochs", "examples", "batch_size", "learning_rate", "keep_checkpoints",
               "save_checkpoint_secs", "save_checkpoint_steps", "save_summaries_steps",
               "start_timeout", "end_timeout"):
    value = getattr(options, name)
    if value is not None and not value > 0:
      raise ValueError("--%s must be above 0, got %r" % (name, value))
  if not (options.steps or options.epochs or options.examples):
    raise ValueError("nothing says when the job ends: give --steps, --epochs or --examples")
  for name, known in (("variables", ("resource", "ref")),
                      ("ps_strategy", ("greedy", "round_robin"))):
    if getattr(options, name) not in known:
      raise ValueError("--%s must be one of %s, got %r" % (
        name, ", ".join(known), getattr(options, name)))
