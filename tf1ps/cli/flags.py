"""The flags of all programs; each program defines the groups that it has.

They are absl flags, so a program of the user's can define its own beside them. `--verbosity` takes
the place of absl's flag of that name, and accepts its numbers as well.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Optional

from absl import flags
from absl import logging as unused_absl_logging  # noqa: F401  defines the flag that ours replaces

from tf1ps.compat import quiet

FLAGS = flags.FLAGS
_ABSL_LEVELS = {"1": "debug", "0": "info", "-1": "warning", "-2": "error", "-3": "fatal"}
# As in tf1ps.training.optimizers, which needs TensorFlow.
_OPTIMIZERS = ["sgd", "momentum", "nesterov", "adam", "lazy_adam", "adagrad", "adadelta",
               "rmsprop", "ftrl", "proximal_sgd", "proximal_adagrad"]
_groups: Dict[str, List[str]] = {}
_recorded: Optional[List[str]] = None


class _VerbosityParser(flags.ArgumentParser):
  syntactic_help = "<%s>" % "|".join(quiet.VERBOSITIES)

  def parse(self, argument):
    value = _ABSL_LEVELS.get(str(argument), str(argument).lower())
    if value not in quiet.VERBOSITIES:
      raise ValueError("must be one of %s" % ", ".join(quiet.VERBOSITIES))
    return value

  def flag_type(self):
    return "string"


def groups() -> Dict[str, List[str]]:
  """The flags that were defined here, by group, in order."""
  return _groups


def names_of(define_all: Callable[[], None]) -> List[str]:
  """The names of the flags that a program's `define` defines, without defining them."""
  global _recorded
  _recorded = []
  try:
    define_all()
    return _recorded
  finally:
    _recorded = None


def define(group: str, definer, name: str, *args, above_zero: bool = False, **kwargs) -> None:
  """Defines a flag by one of absl's functions, as one of a group.

  Args:
    group: the group's name, as --help shows it.
    definer: such as `flags.DEFINE_integer`.
    name: the flag's name.
    *args: for the definer.
    above_zero: whether a value that is given must be above 0.
    **kwargs: for the definer.
  """
  if _recorded is not None:
    _recorded.append(name)
    return
  definer(name, *args, **kwargs)
  if above_zero:
    flags.register_validator(
      name, lambda value: value is None or value > 0, "must be above 0")
  _groups.setdefault(group, []).append(name)


def define_program(needed: bool) -> None:
  """--program and how the model is built."""
  group = "The program"
  define(group, flags.DEFINE_string, "program", None,
         "The program to train: a module's name or the path of a .py file, with the functions "
         "input_fn(mode, shard) and model_fn(features, labels, mode)."
          + ("" if needed else " Only read for the flags that it defines."))
  if needed:
    define(group, flags.DEFINE_integer, "batch_size", 32, "Examples in a batch of one worker.",
           above_zero=True)
    define(group, _define_batch_sizes, "batch_sizes", None,
           "The batch size of each worker, as in 64,32,32, in the place of --batch_size.")
    define(group, flags.DEFINE_enum, "variables", "resource", ["resource", "ref"],
           "The kind of TensorFlow's variables; the same in all tasks.")
    define(group, flags.DEFINE_enum, "on_bad_record", "fail", ["fail", "skip"],
           "What a record that cannot be decoded does: it ends the task, with file and line; or it "
           "is counted and left out. For input by tf1ps.pipeline, and by queue runners.")
    define(group, flags.DEFINE_float, "max_bad_ratio", 0.01,
           "The part of the records that may be left out, 0 to 1; more end the task.",
           lower_bound=0.0, upper_bound=1.0)


class _NumbersParser(flags.ArgumentParser):
  syntactic_help = "<number,number,...>"

  def parse(self, argument):
    if isinstance(argument, list):
      return argument
    try:
      return [int(number) for number in argument.split(",")]
    except ValueError:
      raise ValueError("must be numbers with commas between them, as in 64,32,32") from None

  def flag_type(self):
    return "comma separated list of integers"


def _define_batch_sizes(name, default, text):
  flags.DEFINE(_NumbersParser(), name, default, text, serializer=flags.CsvListSerializer(","))


def define_output() -> None:
  """What every program has."""
  define("Output", _define_verbosity, "verbosity")


def _define_verbosity(name):
  flags.DEFINE(_VerbosityParser(), name, "warning",
               "How much TensorFlow says: warning keeps its start-up noise away, info shows it.",
               serializer=flags.ArgumentSerializer(), allow_override=True)


def define_cluster(own_task: bool = True) -> None:
  """The description of the job, and which of its tasks this one is."""
  group = "The cluster (or TF_CONFIG in the environment)"
  for job in ("ps", "worker", "chief") + ("evaluator",) * own_task:
    define(group, flags.DEFINE_string, job + "_hosts", None,
           "Addresses of the %s tasks: host:port,host:port." % job)
  if not own_task:
    return
  define(group, flags.DEFINE_string, "job_name", None,
         "This task's job; the name of the program tells it where it is absent.")
  define(group, flags.DEFINE_integer, "task_index", None,
         "This task's index in its job; needed where the job has several tasks.")


def define_job() -> None:
  """What several kinds of task have to agree on."""
  group = "The job"
  define(group, flags.DEFINE_string, "container", None,
         "The container that the job's state lives in on the ps; by default one of its own for "
         "each --checkpoint_dir, or else for each --program. The same in all tasks.")
  define(group, flags.DEFINE_string, "job_workers", None,
         "The workers of this job where several jobs share the ps, as in 2-3; all by default.")


def define_replication() -> None:
  """How a job's workers share the work; what servers are started with depends on it."""
  group = "Replication"
  define(group, flags.DEFINE_enum, "replication", "between_graph",
         ["between_graph", "in_graph", "all_reduce"],
         "Each worker runs a graph of its own on the ps's variables; or the chief runs one graph "
         "on all workers; or each worker keeps the variables, and there is no ps.")
  define(group, flags.DEFINE_integer, "clones", 1,
         "The devices of a worker that divide its batch: GPUs, or CPU devices where it has none.",
         above_zero=True)


def define_patience(start_timeout: float, end: bool) -> None:
  """The limits of waiting."""
  group = "Limits, in seconds"
  define(group, flags.DEFINE_float, "start_timeout", start_timeout,
         "How long to wait for the other tasks at the start.", above_zero=True)
  if end:
    define(group, flags.DEFINE_float, "end_timeout", 300.0,
           "How long the chief waits at the end for workers that make no step.", above_zero=True)
  define(group, flags.DEFINE_float, "lost_after", 30.0,
         "After which silence a task counts as lost.", above_zero=True)


def define_checkpoint_dir(meaning: str) -> None:
  """--checkpoint_dir."""
  define("Checkpoints", flags.DEFINE_string, "checkpoint_dir", None, meaning)


def define_training() -> None:
  """When training stops, and how it updates."""
  group = "Training"
  define(group, flags.DEFINE_integer, "steps", None,
         "The global step at which the job ends, whenever it was started.", above_zero=True)
  define(group, flags.DEFINE_integer, "epochs", None,
         "How often the data are gone through, over all workers.", above_zero=True)
  define(group, flags.DEFINE_integer, "examples", None,
         "How many examples are trained on, over all workers.", above_zero=True)
  define(group, flags.DEFINE_enum, "optimizer", "adam", _OPTIMIZERS,
         "The optimizer, where the program has none of its own.")
  define(group, flags.DEFINE_float, "learning_rate", None,
         "Its learning rate; the optimizer's usual one by default.", above_zero=True)
  define(group, flags.DEFINE_boolean, "scale_learning_rate", False,
         "Multiply the learning rate by the gradients that make a synchronous update.")
  define(group, flags.DEFINE_float, "clip_norm", None,
         "The global norm that the gradient of an update is clipped to.", above_zero=True)
  define(group, flags.DEFINE_enum, "update", "async", ["async", "sync"],
         "Each worker updates for itself, or all together, by the mean of their gradients; "
         "all_reduce is always synchronous.")
  define(group, flags.DEFINE_integer, "replicas_to_aggregate", None,
         "The gradients that make a synchronous update; those workers that are more are spare: the "
         "slowest are not waited for. By default all.", above_zero=True)
  define(group, flags.DEFINE_enum, "on_uneven", "stop_all", ["stop_all", "pad", "shrink"],
         "What the end of one worker's data means for synchronous updates: training ends for all; "
         "it counts as one that comes with nothing; or the others go on without it.")
  define(group, flags.DEFINE_integer, "max_lead", None,
         "The most steps that an asynchronous worker makes more than the slowest; it waits then.",
         above_zero=True)
  define(group, flags.DEFINE_integer, "max_staleness", None,
         "The highest age, in global steps, of a gradient that is applied; older ones are dropped.",
         lower_bound=0)
  define(group, flags.DEFINE_boolean, "staleness_damping", False,
         "Divide the learning rate of an update by the age of its gradient.")
  define(group, flags.DEFINE_integer, "warm_up_steps", None,
         "Worker 0 trains alone at first; each time so many global steps later one more joins.",
         above_zero=True)
  define(group, flags.DEFINE_enum, "shard", None,
         ["files", "records", "dynamic", "none"],
         "What is divided among the workers; by default what the program asks its shard for.")
  define(group, flags.DEFINE_enum, "ps_strategy", "greedy", ["greedy", "round_robin"],
         "How variables are spread over the ps: by bytes, or in turn.")
  define(group, flags.DEFINE_integer, "partition_bytes", None,
         "Trainable variables of more bytes are divided by their rows into shards of at most so "
         "many, on all ps. By default none.", above_zero=True)
  group = "Checkpoints"
  define(group, flags.DEFINE_float, "save_checkpoint_secs", 600.0, "Seconds between checkpoints.",
         above_zero=True)
  define(group, flags.DEFINE_integer, "save_checkpoint_steps", None,
         "Global steps between checkpoints, instead of seconds.", above_zero=True)
  define(group, flags.DEFINE_integer, "keep_checkpoints", 5, "How many checkpoints are kept.",
         above_zero=True)
  define(group, flags.DEFINE_integer, "save_summaries_steps", 100,
         "The chief's steps between summaries.", above_zero=True)


def define_devices(use_gpu: bool) -> None:
  """Threads and GPUs of a task."""
  group = "Threads and GPUs"
  define(group, flags.DEFINE_integer, "inter_op_threads", None, "Threads between operations.",
         above_zero=True)
  define(group, flags.DEFINE_integer, "intra_op_threads", None, "Threads within an operation.",
         above_zero=True)
  define(group, flags.DEFINE_float, "gpu_memory_fraction", None,
         "The part of a GPU's memory to take, between 0 and 1.", above_zero=True, upper_bound=1.0)
  define(group, flags.DEFINE_boolean, "gpu_growth", None, "Take GPU memory as it is needed.")
  define(group, flags.DEFINE_boolean, "soft_placement", True,
         "Run an operation elsewhere when its device has no kernel for it.")
  if use_gpu:
    define(group, flags.DEFINE_boolean, "use_gpu", False, "Let this task see GPUs.")
