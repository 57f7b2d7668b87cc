"""The options of all programs: one description of each, from which everything else comes.

`TABLE` describes every option once. From it come

  the flags and --help of each program   tf1ps/cli/flags.py
  `Options`                              the values that the workers of a job train by
  `check_options`                        ranges, allowed values, and what cannot go together
  `shared_by_workers`                    what the signature of a worker's graph contains
  docs/flags.md                          `python -m tf1ps.cli.flags > docs/flags.md`

To add an option: add it to the table and, if workers train by it, to `Options`. The programs define
their flags before TensorFlow is imported, so this module does not import TensorFlow.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from tf1ps.compat import VERBOSITIES
from tf1ps.pipeline import (
  DEFAULT_MAX_BAD_RATIO,
  FAIL_ON_BAD_RECORD,
  ON_BAD_RECORD,
  SHARD_DYNAMIC,
  SHARDS,
)
from tf1ps.program import OPTIMIZERS, VARIABLES
from tf1ps.replication import ON_UNEVEN, REPEAT, STOP_ALL
from tf1ps.transfer import DEFAULT_PACK_BYTES, WIRE_DTYPES

PROGRAMS = ("local", "worker", "ps", "evaluator", "predict", "reset")
_TRAINING = ("local", "worker")
_ON_CLUSTER = ("worker", "ps", "evaluator")
_OF_JOB = ("local", "worker", "ps", "evaluator")
_WITH_PROGRAM = ("local", "worker", "evaluator", "predict")

BETWEEN_GRAPH, IN_GRAPH, ALL_REDUCE = REPLICATIONS = ("between_graph", "in_graph", "all_reduce")
GPU_NONE, GPU_GROW, GPU_ALL = "none", "grow", "all"


class Rule(NamedTuple):
  """A combination of options that is refused."""

  is_broken: Callable[["Options"], bool]  # asked only if the option has another value than usual
  text: str  # what the user reads after "--name=value "


class Option(NamedTuple):
  """The description of one option."""

  name: str  # the flag, and the field of `Options` where there is one
  help: str  # what --help says
  group: str  # the heading under which --help shows it
  programs: Tuple[str, ...]  # the programs that have the flag; none: only a field of `Options`
  parse: Callable[[str], object] = str  # from the text of the flag; raises ValueError
  default: object = None
  defaults: Dict[str, object] = {}  # of the programs that have another default
  above: Optional[float] = None  # the value must be above this number
  at_least: Optional[float] = None
  at_most: Optional[float] = None
  values: Tuple[str, ...] = ()  # the allowed values; () allows any
  rules: Tuple[Rule, ...] = ()  # what it cannot go with
  # Whether all workers must have the same value, given the options; None: they need not.
  is_shared: Optional[Callable[["Options"], bool]] = None
  placeholder: str = ""  # what --help shows for the value
  check: Optional[Callable[[object], str]] = None  # what is wrong with a value; "" if nothing is

  def default_of(self, program: str) -> object:
    """The default in a program."""
    return self.defaults.get(program, self.default)

  def problem_of(self, value) -> str:
    """What is wrong with a value by itself: "must be above 0", for example; "" if nothing is."""
    if value is None:
      return ""
    if self.check is not None:
      return self.check(value)
    if self.values and value not in self.values:
      return "must be one of %s" % ", ".join(self.values)
    for limit, text, is_kept in (
        (self.above, "above", lambda number, limit: number > limit),
        (self.at_least, "at least", lambda number, limit: number >= limit),
        (self.at_most, "at most", lambda number, limit: number <= limit)):
      if limit is not None and not is_kept(value, limit):
        return "must be %s %g" % (text, limit)
    return ""


def parse_batch_size(text: str) -> Union[int, List[int]]:
  """Parses a batch size, or one for each worker with commas between them."""
  try:
    sizes = [int(number) for number in text.split(",")]
  except ValueError:
    raise ValueError("must be a number, or one for each worker, as in 64,32,32") from None
  return sizes[0] if len(sizes) == 1 else sizes


def first_batch_size(value: Union[int, List[int]]) -> int:
  """The batch size of worker 0, which evaluation and prediction use as well."""
  return value[0] if isinstance(value, list) else value


class StalenessPolicy(NamedTuple):
  """What an asynchronous worker does about staleness; None and False: nothing."""

  max_lead: Optional[int] = None  # the most steps that a worker makes more than the slowest
  drop: Optional[int] = None  # gradients of more than this age, in global steps, are dropped
  damp: bool = False  # whether the learning rate is divided by the gradient's age
  warm_up: Optional[int] = None  # one more worker begins each time after this many global steps


def parse_staleness_policy(text: str) -> StalenessPolicy:
  """Parses --staleness_policy; raises ValueError."""
  found = {}
  for part in text.split(",") if text != "none" else []:
    name, has_number, number = part.strip().partition(":")
    if name not in StalenessPolicy._fields or bool(has_number) != (name != "damp"):
      raise ValueError("must be none, or some of max_lead:N, drop:N, damp and warm_up:N with "
                       "commas between them")
    least = 0 if name == "drop" else 1
    if has_number and (not number.isdigit() or int(number) < least):
      raise ValueError("must have a number of at least %d after %s:" % (least, name))
    found[name] = int(number) if has_number else True
  return StalenessPolicy(**found)


def parse_bad_record_policy(text: str) -> Tuple[str, float]:
  """Parses --on_bad_record: the policy, and the ratio of records that may be skipped."""
  name, has_ratio, ratio = text.partition(":")
  if name not in ON_BAD_RECORD or has_ratio and name == FAIL_ON_BAD_RECORD:
    raise ValueError("must be fail, skip, or skip:R")
  try:
    value = float(ratio) if has_ratio else DEFAULT_MAX_BAD_RATIO
  except ValueError:
    value = -1.0
  if not 0.0 <= value <= 1.0:
    raise ValueError("must have a ratio from 0 to 1 after skip:")
  return name, value


def parse_gpu_memory(text: str) -> Dict[str, object]:
  """Parses --gpu_memory to arguments of `make_session_config`; raises ValueError."""
  if text == GPU_GROW:
    return {"gpu_growth": True}
  if text in (GPU_NONE, GPU_ALL):
    return {}
  try:
    fraction = float(text)
  except ValueError:
    fraction = 0.0
  if not 0.0 < fraction <= 1.0:
    raise ValueError("must be none, grow, all, or a number above 0 and at most 1")
  return {"gpu_memory_fraction": fraction}


def _problem_of_parsing(parse: Callable[[str], object]) -> Callable[[object], str]:
  """Makes the check of an option whose text has a form of its own."""
  def check(value) -> str:
    try:
      parse(value)
    except ValueError as error:
      return str(error)
    return ""

  return check


def _problem_of_batch_size(value) -> str:
  sizes = value if isinstance(value, list) else [value]
  return "" if sizes and min(sizes) > 0 else "must be above 0"


def parse_names(text: str) -> List[str]:
  """Parses names with commas between them."""
  return [name.strip() for name in text.split(",") if name.strip()]


def parse_verbosity(text: str) -> str:
  """Parses a verbosity: a name, or a number of absl's."""
  absl_levels = {"1": "debug", "0": "info", "-1": "warning", "-2": "error", "-3": "fatal"}
  value = absl_levels.get(str(text), str(text).lower())
  if value not in VERBOSITIES:
    raise ValueError("must be one of %s" % ", ".join(VERBOSITIES))
  return value


def _is_own_graph(options: "Options") -> bool:
  return options.replication == BETWEEN_GRAPH


def _is_alone(options: "Options") -> bool:
  """Whether each worker updates the variables on the ps by itself."""
  return _is_own_graph(options) and not options.is_synchronous


_NEEDS_SYNC = Rule(lambda options: not options.is_synchronous,
                   "is about synchronous updates: give --sync_replicas too")
# In-graph and all-reduce compute the gradients of all workers or of none: no worker is spare, and
# the first end of data ends all.
_NEEDS_OWN_SYNC = Rule(
  lambda options: not _is_own_graph(options),
  "is about workers that train each for itself: it needs --replication=between_graph, the default, "
  "and --sync_replicas")
_NEEDS_PS = Rule(lambda options: options.replication == ALL_REDUCE,
                 "is about variables on ps, and --replication=all_reduce has none")
_NEEDS_OWN_UPDATE = Rule(
  lambda options: not _is_alone(options),
  "is about workers that update each for itself: it needs --replication=between_graph, the "
  "default, and no --sync_replicas")
_SEVERAL_STEPS = (
  Rule(lambda options: not _is_own_graph(options),
       "is about workers that train each for itself: it needs --replication=between_graph, the "
       "default"),
  Rule(lambda options: options.is_synchronous,
       "is about asynchronous updates: the next synchronous step begins when all workers have made "
       "this one. It cannot go with --sync_replicas"),
  Rule(lambda options: options.staleness.max_lead is not None,
       "cannot go with --staleness_policy=max_lead, which makes a worker wait before a step"),
  Rule(lambda options: options.prefetch,
       "cannot go with --prefetch, which fetches the values of one step ahead"))
_CLUSTER = "The cluster (or TF_CONFIG in the environment)"

TABLE: Tuple[Option, ...] = (
  Option("program", "The program to train: a module's name or the path of a .py file, with the "
         "functions input_fn(mode, shard) and model_fn(features, labels, mode). A ps only reads "
         "the flags that it defines.", "The program", _OF_JOB + ("predict",)),
  Option("batch_size", "Examples in a batch of one worker; or of each worker, as in 64,32,32.",
         "The program", _WITH_PROGRAM, parse_batch_size, 32, placeholder="N",
         check=_problem_of_batch_size, rules=(
           Rule(lambda options: isinstance(options.batch_size, list) and not _is_alone(options),
                "is about workers that update each for itself: it needs "
                "--replication=between_graph, the default, and no --sync_replicas"),)),
  Option("variables", "The kind of TensorFlow's variables; the same in all tasks.", "The program",
         _WITH_PROGRAM, default="resource", values=VARIABLES),
  Option("on_bad_record", "What happens to a record that cannot be decoded: it ends the task with "
         "its file and line (fail), or it is counted and left out (skip). More than 1 % of bad "
         "records end the task; skip:0.05 allows 5 %. For input by tf1ps.pipeline and by queue "
         "runners.", "The program", _WITH_PROGRAM, default=FAIL_ON_BAD_RECORD,
         placeholder="fail|skip[:R]", check=_problem_of_parsing(parse_bad_record_policy)),

  Option("num_ps", "Parameter servers to start; 1 by default, and none with all_reduce.",
         "The local cluster", ("local",), int),
  Option("num_workers", "Workers to start; worker 0 is the chief.", "The local cluster", ("local",),
         int, 2),
  Option("evaluator", "Start an evaluator beside them; needs --checkpoint_dir.",
         "The local cluster", ("local",), bool, False),
  Option("log_dir", "The directory that gets a file with the output of each task; by default a new "
         "one under the system's temporary directory.", "The local cluster", ("local",)),

  Option("ps_hosts", "Addresses of the ps tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",)),
  Option("worker_hosts", "Addresses of the worker tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",)),
  Option("chief_hosts", "Addresses of the chief tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",)),
  Option("job_name", "This task's job; by default the job that the program runs.", _CLUSTER,
         _ON_CLUSTER),
  Option("task_index", "This task's index in its job; needed if the job has several tasks.",
         _CLUSTER, _ON_CLUSTER, int),

  Option("container", "The container of the job's state on the ps; the same in all tasks. "
         "By default jobs on a ps are told apart by their --job_workers.",
         "The job", _OF_JOB),
  Option("job_workers", "The workers of this job where several jobs share the ps, as in 2-3; all "
         "by default.", "The job", _OF_JOB, placeholder="N-N"),
  Option("persistent", "Serve any number of jobs, until SIGTERM or Ctrl-C.", "The job", ("ps",),
         bool, False),

  Option("replication", "Each worker runs its own graph on the variables of the ps; or the chief "
         "runs one graph on all workers; or each worker keeps the variables, and there is no ps.",
         "Replication", _TRAINING, default=BETWEEN_GRAPH, values=REPLICATIONS,
         is_shared=lambda options: True),
  Option("num_clones", "The devices of a worker that divide its batch: GPUs, or CPU devices if "
         "it has none.", "Replication", _TRAINING, int, 1, above=0,
         rules=(Rule(lambda options: options.replication == IN_GRAPH and not options.is_synchronous,
                     "with --replication=in_graph needs --sync_replicas: asynchronous in-graph "
                     "replicas update each for itself, and clones make one gradient together"),)),

  Option("steps", "The global step at which the job ends, whenever it was started.", "Training",
         _TRAINING, int, above=0),
  Option("epochs", "How often all workers together go through the data.", "Training", _TRAINING,
         int, above=0),
  Option("examples", "How many examples all workers together train on.", "Training", _TRAINING, int,
         above=0),
  Option("optimizer", "The optimizer, if the program has none of its own.", "Training", _TRAINING,
         default="adam", values=OPTIMIZERS),
  Option("learning_rate", "Its learning rate; by default the optimizer's usual one.", "Training",
         _TRAINING, float, above=0),
  Option("scale_learning_rate", "Multiply the learning rate by the number of gradients that make a "
         "synchronous update.", "Training", _TRAINING, bool, False, rules=(_NEEDS_SYNC,)),
  Option("clip_norm", "The global norm that the gradient of an update is clipped to.", "Training",
         _TRAINING, float, above=0),
  Option("sync_replicas", "All workers make each update together, by the mean of their gradients. "
         "Without it each worker updates by itself; all_reduce is always synchronous.", "Training",
         _TRAINING, bool, False, is_shared=lambda options: True),
  Option("replicas_to_aggregate", "The gradients that make a synchronous update, by default one of "
         "each worker. With less, the slowest workers are not waited for.", "Training", _TRAINING,
         int, above=0, rules=(_NEEDS_SYNC, _NEEDS_OWN_SYNC)),
  Option("on_uneven", "What the end of one worker's data means for synchronous updates: training "
         "ends for all; or the worker counts as one without a gradient; or the others go on "
         "without it; or it begins again with its data until all have gone through theirs.",
         "Training", _TRAINING, default=STOP_ALL,
         values=ON_UNEVEN, rules=(
           _NEEDS_SYNC, _NEEDS_OWN_SYNC,
           Rule(lambda options: options.on_uneven == REPEAT and options.shard == SHARD_DYNAMIC,
                "begins again with a worker's own data, and under --shard=dynamic no worker has "
                "data of its own: give --on_uneven=shrink, or pad"))),
  Option("staleness_policy", "What asynchronous workers do about stale gradients. max_lead:N makes "
         "a worker wait while it is N steps ahead of the slowest; drop:N drops a gradient that is "
         "more than N global steps old; damp divides the learning rate by the gradient's age; "
         "warm_up:N starts with worker 0 and adds a worker every N global steps. Put commas "
         "between several.", "Training", _TRAINING, default="none", placeholder="none|POLICIES",
         check=_problem_of_parsing(parse_staleness_policy), rules=(_NEEDS_OWN_UPDATE,)),
  Option("shard", "What is divided among the workers; by default what the program asks its shard "
         "for.", "Training", _TRAINING, values=SHARDS,
         is_shared=lambda options: options.shard == SHARD_DYNAMIC, rules=(
           Rule(lambda options: options.shard == SHARD_DYNAMIC
                and not _is_own_graph(options),
                "is about workers that read each for itself: it needs "
                "--replication=between_graph, the default"),
           Rule(lambda options: options.shard == SHARD_DYNAMIC
                and options.is_synchronous and options.on_uneven == STOP_ALL,
                "gives workers unequal shares, and with --sync_replicas the first end of one would "
                "end all: give --on_uneven=shrink, or pad"))),
  Option("partition_bytes", "Trainable variables of more bytes are divided by their rows into "
         "shards of at most this size, on all ps. By default none is.", "Training", _TRAINING, int,
         above=0, rules=(_NEEDS_PS,),
         is_shared=lambda options: options.partition_bytes is not None),

  Option("checkpoint_dir", "The directory of the job's checkpoints: the chief saves there and "
         "restores from it at the start, evaluator and tf1ps-predict read there. Without it "
         "nothing is kept.", "Checkpoints", _WITH_PROGRAM),
  Option("save_checkpoints_secs", "Seconds between checkpoints.", "Checkpoints", _TRAINING, float,
         600.0, above=0),
  Option("save_checkpoints_steps", "Global steps between checkpoints, instead of seconds.",
         "Checkpoints", _TRAINING, int, above=0),
  Option("keep_checkpoint_max", "How many checkpoints are kept.", "Checkpoints", _TRAINING, int, 5,
         above=0),
  Option("save_summary_steps", "The chief's steps between summaries.", "Checkpoints", _TRAINING,
         int, 100, above=0),

  Option("pack_bytes", "Variables of less than this number of bytes travel together, in one "
         "message for all of a ps, and so do their gradients; 0: each alone.", "Transfer",
         _TRAINING, int, DEFAULT_PACK_BYTES, at_least=0, rules=(_NEEDS_PS,),
         is_shared=lambda options: options.sync_replicas),
  Option("wire_dtype", "What float32 values and gradients are sent as (int8: gradients alone); "
         "variables stay float32.", "Transfer", _TRAINING, default="float32", values=WIRE_DTYPES,
         rules=(_NEEDS_PS,),
         # Gradients wait on the ps for one another in one form.
         is_shared=lambda options: options.sync_replicas),
  Option("prefetch", "Compute each step on values fetched during the step before: gradients are "
         "one update older. Asynchronous updates only.", "Transfer", _TRAINING, bool, False, rules=(
           Rule(lambda options: not _is_alone(options),
                "makes gradients stale, on purpose: it needs --replication=between_graph, the "
                "default, and no --sync_replicas"),
           Rule(lambda options: options.shard == SHARD_DYNAMIC,
                "cannot go with --shard=dynamic, whose passes end in the middle of a step"))),
  Option("steps_per_execution", "The steps of an asynchronous worker in one run of its session, "
         "each on its own batch: fewer trips to the ps. Hooks, stops and checkpoints act between "
         "runs.",
         "Transfer", _TRAINING, int, 1, above=0, rules=_SEVERAL_STEPS),
  Option("steps_in_flight", "The steps of an asynchronous worker that run at the same time: one "
         "travels while another computes, on older values.", "Transfer", _TRAINING, int, 1, above=0,
         rules=_SEVERAL_STEPS + (
           Rule(lambda options: options.shard == SHARD_DYNAMIC,
                "cannot go with --shard=dynamic, which needs the order in which batches were "
                "trained on"),)),
  Option("gradient_accumulation_steps", "The batches of a worker that make one gradient, their "
         "mean: a larger batch for one trip to the ps.", "Transfer", _TRAINING, int, 1, above=0,
         rules=(
           Rule(lambda options: not _is_own_graph(options),
                "needs --replication=between_graph, the default"),
           Rule(lambda options: options.steps_in_flight > 1,
                "cannot go with --steps_in_flight: the batches are added up in one place, for one "
                "step after the other"))),

  Option("start_timeout", "How long to wait for the other tasks at the start.",
         "Limits, in seconds", _OF_JOB, float, 60.0, {"ps": 600.0}, above=0),
  Option("end_timeout", "How long the chief waits at the end for workers that make no step.",
         "Limits, in seconds", _TRAINING, float, 300.0, above=0),
  Option("heartbeat_timeout", "How long a task may be silent before it counts as lost.",
         "Limits, in seconds", _OF_JOB, float, 30.0, above=0),

  Option("inter_op_parallelism_threads", "Threads between operations.", "Threads and GPUs", _OF_JOB,
         int,
         above=0),
  Option("intra_op_parallelism_threads", "Threads within an operation.", "Threads and GPUs",
         _OF_JOB, int,
         above=0),
  Option("gpu_memory", "The memory that a task takes of each GPU: all of it, as much as it needs "
         "(grow), or a part between 0 and 1. With none the task sees no GPU. tf1ps-local gives "
         "its GPUs to the workers alone.", "Threads and GPUs", _OF_JOB,
         default=GPU_ALL, defaults={"ps": GPU_NONE, "evaluator": GPU_NONE},
         placeholder="none|grow|all|X", check=_problem_of_parsing(parse_gpu_memory)),

  Option("output", "The file to write: .csv, .jsonl or .npz.", "What to write", ("predict",)),
  Option("export_dir", "The directory to write a SavedModel into.", "What to write", ("predict",)),

  Option("target", "A ps that was started by tf1ps, instead of the addresses: grpc://host:port. It "
         "knows its cluster.", "What to clear", ("reset",)),
  Option("queues", "Shared names of queues in these containers that other programs made, to close "
         "as well: a ps of TensorFlow 2 dies when a queue on which a task is blocked is cleared.",
         "What to clear", ("reset",), parse_names, placeholder="NAME,NAME"),

  Option("verbosity", "How much TensorFlow logs: warning hides its start-up messages, info shows "
         "them.", "Output", PROGRAMS, parse_verbosity, "warning", placeholder="LEVEL"),
)
BY_NAME = {option.name: option for option in TABLE}


# The flags of older versions, and what to do instead. A program refuses them with this advice.
OLD_FLAGS = {
  "batch_sizes": "give --batch_size=N,N",
  "max_bad_ratio": "give --on_bad_record=skip:RATIO",
  "max_lead": "give --staleness_policy=max_lead:N",
  "max_staleness": "give --staleness_policy=drop:N",
  "staleness_damping": "give --staleness_policy=damp",
  "warm_up_steps": "give --staleness_policy=warm_up:N",
  "save_checkpoint_secs": "give --save_checkpoints_secs",
  "save_checkpoint_steps": "give --save_checkpoints_steps",
  "save_summaries_steps": "give --save_summary_steps",
  "keep_checkpoints": "give --keep_checkpoint_max",
  "clones": "give --num_clones",
  "accumulate": "give --gradient_accumulation_steps",
  "steps_per_run": "give --steps_per_execution",
  "lost_after": "give --heartbeat_timeout",
  "standing": "give --persistent",
  "update": "give --sync_replicas, or nothing for asynchronous updates",
  "inter_op_threads": "give --inter_op_parallelism_threads",
  "intra_op_threads": "give --intra_op_parallelism_threads",
  "evaluator_hosts": "leave it out, because no task connects to the evaluator",
  "soft_placement": "leave it out, because an operation always runs elsewhere if its device has no "
                    "kernel for it",
  "ps_strategy": "leave it out, because variables are always spread over the ps by their bytes",
  "gpu_memory_fraction": "give --gpu_memory=X",
  "gpu_growth": "give --gpu_memory=grow",
  "use_gpu": "give --gpu_memory=all, grow or X to a ps or an evaluator that shall see GPUs",
  "timeout": "leave it out, because tf1ps-reset gives each task 10 seconds",
}


def of_program(program: str) -> List[Option]:
  """The options that a program has as flags, in the order of --help."""
  return [option for option in TABLE if program in option.programs]


def _default(name: str):
  return BY_NAME[name].default


class Options(NamedTuple):
  """The values that the workers of a job train by; `TABLE` says what each means."""

  checkpoint_dir: Optional[str] = _default("checkpoint_dir")
  steps: Optional[int] = _default("steps")
  epochs: Optional[int] = _default("epochs")
  examples: Optional[int] = _default("examples")
  batch_size: Union[int, List[int]] = _default("batch_size")
  optimizer: str = _default("optimizer")
  learning_rate: Optional[float] = _default("learning_rate")
  scale_learning_rate: bool = _default("scale_learning_rate")
  clip_norm: Optional[float] = _default("clip_norm")
  replication: str = _default("replication")
  num_clones: int = _default("num_clones")
  sync_replicas: bool = _default("sync_replicas")
  replicas_to_aggregate: Optional[int] = _default("replicas_to_aggregate")
  on_uneven: str = _default("on_uneven")
  staleness_policy: str = _default("staleness_policy")
  steps_per_execution: int = _default("steps_per_execution")
  steps_in_flight: int = _default("steps_in_flight")
  gradient_accumulation_steps: int = _default("gradient_accumulation_steps")
  variables: str = _default("variables")
  shard: Optional[str] = _default("shard")
  on_bad_record: str = _default("on_bad_record")
  pack_bytes: int = _default("pack_bytes")
  wire_dtype: str = _default("wire_dtype")
  prefetch: bool = _default("prefetch")
  partition_bytes: Optional[int] = _default("partition_bytes")
  save_checkpoints_secs: Optional[float] = _default("save_checkpoints_secs")
  save_checkpoints_steps: Optional[int] = _default("save_checkpoints_steps")
  keep_checkpoint_max: int = _default("keep_checkpoint_max")
  save_summary_steps: int = _default("save_summary_steps")
  start_timeout: float = _default("start_timeout")
  end_timeout: float = _default("end_timeout")
  config: object = None  # the tf.ConfigProto of the sessions; no flag

  @property
  def is_synchronous(self) -> bool:
    """Whether several workers make one update together."""
    return self.sync_replicas or self.replication == ALL_REDUCE

  @property
  def staleness(self) -> StalenessPolicy:
    """The parts of `staleness_policy`."""
    return parse_staleness_policy(self.staleness_policy)

  @property
  def overlaps(self) -> bool:
    """Whether gradients are stale even if there is only one worker."""
    return self.prefetch or self.steps_in_flight > 1


def check_options(options: Options) -> None:
  """Checks each value by itself, then what cannot go together.

  Raises:
    ValueError: naming the first option that is wrong and what to give instead.
  """
  fields = [option for option in TABLE if option.name in Options._fields]
  for option in fields:
    value = getattr(options, option.name)
    problem = option.problem_of(value)
    if problem:
      raise ValueError("--%s %s, got %r" % (option.name, problem, value))
  if not (options.steps or options.epochs or options.examples):
    raise ValueError("nothing says when the job ends: give --steps, --epochs or --examples")
  for option in fields:
    value = getattr(options, option.name)
    for rule in option.rules:
      if value != option.default and rule.is_broken(options):
        raise ValueError("%s %s" % (_as_flag(option.name, value), rule.text))


def shared_by_workers(options: Options) -> List[str]:
  """The options that all workers of a job must share, as flags: "--replication=in_graph"."""
  return [_as_flag(option.name, getattr(options, option.name))
          for option in TABLE if option.is_shared is not None and option.is_shared(options)]


def _as_flag(name: str, value) -> str:
  """An option as the user gives it: "--steps=5", "--prefetch" or "--noprefetch"."""
  if isinstance(value, bool):
    return "--%s%s" % ("" if value else "no", name)
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return "--%s=%s" % (name, value)


def share_of(options: Options, count: int) -> Optional[float]:
  """How many times the examples that a worker counts all train on; None: by the steps of all.

  Args:
    options: of the job.
    count: how many workers there are.
  """
  if options.replication == IN_GRAPH:
    return 1.0  # the chief counts for all
  if options.is_synchronous:
    return float(options.replicas_to_aggregate or count)
  return None


def batch_size_of(options: Options, index: int, count: int) -> int:
  """The batch size of a worker.

  Args:
    options: of the job.
    index: of the worker, from 0.
    count: how many workers there are.

  Raises:
    ValueError: another number of sizes than of workers.
  """
  sizes = options.batch_size
  if not isinstance(sizes, list):
    return sizes
  if len(sizes) != count:
    raise ValueError("%s has %d numbers, and there are %d workers" % (
      _as_flag("batch_size", sizes), len(sizes), count))
  return sizes[index]


def bad_records_of(options: Options):
  """The `BadRecords` that the options ask for."""
  from tf1ps.pipeline import BadRecords  # imports TensorFlow

  return BadRecords(*parse_bad_record_policy(options.on_bad_record))


def shard_of(options: Options, index: int, count: int):
  """The `Shard` of a worker's data; arguments and errors are those of `batch_size_of`."""
  from tf1ps.pipeline import BATCHES_PER_BLOCK, Shard  # import TensorFlow

  sizes = options.batch_size
  largest = max(sizes) if isinstance(sizes, list) else sizes
  return Shard(
    mode="train", index=index, count=count, batch_size=batch_size_of(options, index, count),
    epochs=options.epochs, policy=options.shard, block_size=BATCHES_PER_BLOCK * largest)
