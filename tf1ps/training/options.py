"""What the flags say of training: the same values in every worker of a job."""

from __future__ import annotations

from typing import List, NamedTuple, Optional

from tf1ps.pipeline import bad_records, work
from tf1ps.pipeline import shard as shard_lib
from tf1ps.replication import turns
from tf1ps.transfer import groups, wire

REPLICATIONS = ("between_graph", "in_graph", "all_reduce")


class Options(NamedTuple):
  """What the flags say of training; the same in every worker of a job."""

  checkpoint_dir: Optional[str] = None  # None: nothing is kept
  steps: Optional[int] = None  # the global step at which the job ends
  epochs: Optional[int] = None  # how often the data are gone through, over all workers
  examples: Optional[int] = None  # trained on, over all workers
  batch_size: int = 32  # of one worker
  batch_sizes: Optional[List[int]] = None  # of each worker, in the place of batch_size
  optimizer: str = "adam"
  learning_rate: Optional[float] = None  # None: the optimizer's default
  scale_learning_rate: bool = False  # whether it is multiplied by the gradients of an update
  clip_norm: Optional[float] = None  # the global norm that an update's gradient is clipped to
  replication: str = "between_graph"  # or "in_graph", "all_reduce"
  clones: int = 1  # devices of a worker that divide its batch
  update: str = "async"  # or "sync"; all_reduce is always synchronous
  replicas_to_aggregate: Optional[int] = None  # gradients of a synchronous update; None: all
  on_uneven: str = "stop_all"  # or "pad", "shrink": what the end of one worker's data means
  max_lead: Optional[int] = None  # steps of a worker over the slowest
  max_staleness: Optional[int] = None  # the highest age of a gradient that is applied
  staleness_damping: bool = False  # whether the learning rate is divided by the gradient's age
  warm_up_steps: Optional[int] = None  # global steps until one more worker joins
  steps_per_run: int = 1  # steps of a worker in one run of its session
  steps_in_flight: int = 1  # steps of a worker that run at the same time
  accumulate: int = 1  # batches that make one gradient
  variables: str = "resource"  # or "ref"
  shard: Optional[str] = None  # "files", "records", "dynamic", "none"; None: as the program asks
  on_bad_record: str = bad_records.FAIL  # or "skip"
  max_bad_ratio: float = bad_records.DEFAULT_RATIO  # the part of the records that may be skipped
  ps_strategy: str = "greedy"  # or "round_robin"
  pack_bytes: int = groups.PACK_BYTES  # smaller variables travel together; 0: each alone
  wire_dtype: str = "float32"  # or "bfloat16", "float16": what float32 values are sent as
  prefetch: bool = False  # whether a step computes on values fetched during the one before
  partition_bytes: Optional[int] = None  # of a shard; larger variables are divided
  save_checkpoint_secs: Optional[float] = 600.0
  save_checkpoint_steps: Optional[int] = None  # instead of the seconds
  keep_checkpoints: int = 5
  save_summaries_steps: int = 100
  start_timeout: float = 60.0
  end_timeout: float = 300.0
  config: object = None  # the sessions' tf.ConfigProto

  @property
  def is_synchronous(self) -> bool:
    """Whether several workers make one update together."""
    return self.update == "sync" or self.replication == "all_reduce"


def check_options(options: Options) -> None:
  """Refuses options that cannot work together; raises ValueError."""
  for name in ("steps", "epochs", "examples", "batch_size", "learning_rate", "keep_checkpoints",
               "save_checkpoint_secs", "save_checkpoint_steps", "save_summaries_steps",
               "start_timeout", "end_timeout", "clip_norm", "replicas_to_aggregate", "clones",
               "max_lead", "warm_up_steps", "steps_per_run", "steps_in_flight", "accumulate",
               "partition_bytes"):
    value = getattr(options, name)
    if value is not None and not value > 0:
      raise ValueError("--%s must be above 0, got %r" % (name, value))
  if not (options.steps or options.epochs or options.examples):
    raise ValueError("nothing says when the job ends: give --steps, --epochs or --examples")
  for name, known in (("variables", ("resource", "ref")),
                      ("ps_strategy", ("greedy", "round_robin")),
                      ("replication", REPLICATIONS), ("update", ("async", "sync")),
                      ("on_uneven", turns.ON_UNEVEN), ("wire_dtype", wire.DTYPES)):
    if getattr(options, name) not in known:
      raise ValueError("--%s must be one of %s, got %r" % (
        name, ", ".join(known), getattr(options, name)))
  _refuse(options, not options.is_synchronous, "--%s=%s is about synchronous updates: give "
          "--update=sync too", "replicas_to_aggregate", "on_uneven", "scale_learning_rate")
  # One run computes the gradients of all, or none: nobody is spare, and the first end ends it.
  _refuse(options, options.replication != "between_graph", "--%s=%s is about workers that train "
          "each for itself: it needs --replication=between_graph, the default, and --update=sync",
          "replicas_to_aggregate", "on_uneven")
  if options.clones > 1 and options.replication == "in_graph" and options.update == "async":
    raise ValueError(
      "--clones=%d with --replication=in_graph needs --update=sync: asynchronous in-graph replicas "
      "update each for itself, and clones make one gradient together" % options.clones)
  _refuse(options, options.replication == "all_reduce", "--%s=%s is about variables on ps, and "
          "--replication=all_reduce has none", "ps_strategy", "partition_bytes", "pack_bytes",
          "wire_dtype")
  groups.check_pack_bytes(options.pack_bytes)
  bad_records_of(options)
  _check_dynamic(options)
  _check_staleness(options)
  _check_runs(options)


def _check_dynamic(options: Options) -> None:
  """Refuses ranges that are handed out where workers cannot get unequal shares."""
  if options.shard != "dynamic":
    return
  if options.replication != "between_graph":
    raise ValueError("--shard=dynamic is about workers that read each for itself: it needs "
                     "--replication=between_graph, the default, got %s" % options.replication)
  if options.is_synchronous and options.on_uneven == turns.STOP_ALL:
    raise ValueError("--shard=dynamic gives workers unequal shares, and with --update=sync the "
                     "first end of one would end all: say --on_uneven=shrink, or pad")


def _refuse(options, condition, text, *names):
  """Refuses flags that were given where they mean nothing."""
  for name in names:
    value = getattr(options, name)
    if condition and value != Options._field_defaults[name]:
      raise ValueError(text % (name, value))


def _check_staleness(options: Options) -> None:
  """Refuses what cannot be said of stale gradients."""
  is_async = options.replication == "between_graph" and not options.is_synchronous
  if options.prefetch and not is_async:
    raise ValueError("--prefetch makes gradients stale, on purpose: it needs "
                     "--replication=between_graph and --update=async, the defaults")
  _refuse(options, not is_async, "--%s=%s is about workers that update each for itself: it needs "
          "--replication=between_graph and --update=async, the defaults", "max_lead",
          "max_staleness", "staleness_damping", "warm_up_steps", "batch_sizes")
  if options.max_staleness is not None and options.max_staleness < 0:
    raise ValueError("--max_staleness must be at least 0, got %r" % (options.max_staleness,))
  if options.batch_sizes is not None:
    if min(options.batch_sizes, default=0) < 1:
      raise ValueError("--batch_sizes must be numbers above 0, got %s" % (
        ",".join(map(str, options.batch_sizes)) or "none"))
    if options.batch_size != Options._field_defaults["batch_size"]:
      raise ValueError("--batch_sizes stands in the place of --batch_size: give one of them")


def _check_runs(options: Options) -> None:
  """Refuses runs of another shape where workers wait for each other at every step."""
  for name in ("steps_per_run", "steps_in_flight"):
    _refuse(options, options.replication != "between_graph", "--%s=%s is about workers that train "
            "each for itself: it needs --replication=between_graph, the default", name)
    _refuse(options, options.is_synchronous, "--%s=%s is about asynchronous updates: the next "
            "synchronous step begins when all workers have made this one. It needs --update=async, "
            "the default", name)
    _refuse(options, options.max_lead is not None, "--%s=%s cannot be had with --max_lead, which "
            "has a worker wait before a step", name)
  _refuse(options, options.shard == "dynamic", "--%s=%s cannot be had with --shard=dynamic, which "
          "has to know the order in which batches were trained on", "steps_in_flight")
  _refuse(options, options.replication != "between_graph", "--%s=%s needs "
          "--replication=between_graph, the default", "accumulate")
  _refuse(options, options.prefetch, "--%s=%s cannot be had with --prefetch, which fetches the "
          "values of one step ahead", "steps_per_run", "steps_in_flight")
  if options.prefetch and options.shard == "dynamic":
    raise ValueError("--prefetch cannot be had with --shard=dynamic, whose passes end in the "
                     "middle of a step")
  _refuse(options, options.steps_in_flight > 1, "--%s=%s cannot be had with --steps_in_flight: the "
          "batches are added up in one place, for one step after the other", "accumulate")


def share_of(options: Options, count: int) -> Optional[float]:
  """How many times the examples that a worker counts all train on; None: by the steps of all.

  Args:
    options: what the flags say.
    count: how many workers there are.
  """
  if options.replication == "in_graph":
    return 1.0  # the chief counts for all
  if options.is_synchronous:
    return float(options.replicas_to_aggregate or count)
  return None


def batch_size_of(options: Options, index: int, count: int) -> int:
  """The batch size of a worker.

  Args:
    options: what the flags say.
    index: of the worker, from 0.
    count: how many workers there are.

  Raises:
    ValueError: another number of sizes than of workers.
  """
  if options.batch_sizes is None:
    return options.batch_size
  if len(options.batch_sizes) != count:
    raise ValueError("--batch_sizes=%s has %d numbers, and there are %d workers" % (
      ",".join(map(str, options.batch_sizes)), len(options.batch_sizes), count))
  return options.batch_sizes[index]


def bad_records_of(options: Options) -> bad_records.BadRecords:
  """The policy for bad records; raises ValueError."""
  return bad_records.BadRecords(options.on_bad_record, options.max_bad_ratio)


def shard_of(options: Options, index: int, count: int) -> shard_lib.Shard:
  """The share of the data of a worker; arguments and errors are those of `batch_size_of`."""
  largest = max(options.batch_sizes or [options.batch_size])
  return shard_lib.Shard(
    mode="train", index=index, count=count, batch_size=batch_size_of(options, index, count),
    epochs=options.epochs, policy=options.shard, block_size=work.BATCHES * largest)
