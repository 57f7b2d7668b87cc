"""The options of all programs.

`TABLE` describes each option once. Everything else comes from it:

  the flags and --help of each program   tf1ps/cli/flags.py
  docs/flags.md                          `python -m tf1ps.cli.flags > docs/flags.md`
  `Options`                              the values that the workers of a job train by
  `check_options`                        checks values, and refuses options that exclude each other
  `shared_by_workers`                    the options that a worker's signature contains

To add an option, add it to the table. This module does not import TensorFlow, because the programs
define their flags before that import.
"""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from tf1ps.checkpoint import directory_problem
from tf1ps.cluster import AUTO_RESOLVER, DEFAULT_PORT, RESOLVERS
from tf1ps.compat import GRACE, VERBOSITIES
from tf1ps.monitoring import parse_metrics_address
from tf1ps.pipeline import FAIL_ON_BAD_RECORD, SHARD_DYNAMIC, SHARDS, parse_bad_record_policy
from tf1ps.program import Schedule, parse_metric_goal, parse_schedule
from tf1ps.replication import ON_UNEVEN, REPEAT, STOP_ALL
from tf1ps.session import PS_RECOVERIES
from tf1ps.training.optimizer_table import OPTIMIZERS, parse_optimizer
from tf1ps.transfer import DEFAULT_PACK_BYTES, PACK_VARIABLE, WIRE_DTYPES

PROGRAMS = (
  "local", "worker", "ps", "evaluator", "task", "predict", "reset", "ssh", "status", "top")
_ASKING = ("status", "top")
_TRAINING = ("local", "worker")
_ON_CLUSTER = ("worker", "ps", "evaluator")
_RESOLVING = _ON_CLUSTER + ("reset",) + _ASKING  # they find a cluster in the environment
_OF_JOB = ("local", "worker", "ps", "evaluator")
_WITH_PS = ("local", "worker", "ps")
_WITH_PROGRAM = ("local", "worker", "evaluator", "predict")

AUTO = "auto"
BETWEEN_GRAPH, IN_GRAPH, ALL_REDUCE = REPLICATIONS = ("between_graph", "in_graph", "all_reduce")
OVERLAP_NONE, OVERLAP_PREFETCH = "none", "prefetch"
GPU_NONE, GPU_GROW, GPU_ALL = "none", "grow", "all"
LOG_TEXT, LOG_JSON = LOG_FORMATS = ("text", "json")
_MAX_RESTARTS = 5  # of a task, where --restart=on_failure has no number
_MOST_TRACED = 100  # steps; a worker keeps all their traces, some MB each with a large graph


class Veto(NamedTuple):
  """A combination of options that is refused."""

  is_broken: Callable[["Options"], bool]  # called only if the option does not have its default
  text: str  # the rest of a message that begins with "--name=value "


class Option(NamedTuple):
  """A row of `TABLE`."""

  name: str  # the name of the flag, and of the field of `Options` if the option has a field
  help: str  # the text of --help
  group: str  # the heading under which --help shows it
  programs: Tuple[str, ...]  # the programs that have the flag
  parse: Callable[[str], object] = str  # from the text of the flag; raises ValueError
  default: object = None
  defaults: Dict[str, object] = {}  # {program: its default}, where it differs from `default`
  above: Optional[float] = None  # the value must be a number above this bound
  at_least: Optional[float] = None  # the value must be a number that is not below this bound
  values: Tuple[str, ...] = ()  # the allowed values; () allows any
  rules: Tuple[Veto, ...] = ()  # the combinations that are refused
  # Returns whether all workers must have the same value, given the options. None: never.
  is_shared: Optional[Callable[["Options"], bool]] = None
  placeholder: str = ""  # the value in --help, such as "NAME,NAME", or "[=N]" of a bare flag
  # Returns what is wrong with a value, or "". It replaces above, at_least and values.
  check: Optional[Callable[[object], str]] = None
  trains: bool = False  # whether workers train by it although other programs also have it
  first: bool = False  # whether --help also shows it, because a first job may need it
  bare: bool = False  # whether --NAME and --noNAME also stand without a value

  def default_of(self, program: str) -> object:
    """The default in a program."""
    return self.defaults.get(program, self.default)

  @property
  def is_switch(self) -> bool:
    """Whether the flag may stand without a value."""
    return self.bare or self.parse is bool

  def problem_of(self, value) -> str:
    """What is wrong with a value by itself, such as "must be above 0"; "" if nothing is."""
    if value is None:
      return ""
    if self.check is not None:
      return self.check(value)
    if self.values and value not in self.values:
      return "must be one of %s" % ", ".join(self.values)
    if self.above is not None and not value > self.above:
      return "must be above %g" % self.above
    if self.at_least is not None and not value >= self.at_least:
      return "must be at least %g" % self.at_least
    return ""


def parse_batch_size(text: str) -> Union[int, List[int]]:
  """Parses --batch_size: a number, or a number for each worker with commas between them."""
  try:
    sizes = [int(number) for number in text.split(",")]
  except ValueError:
    raise ValueError("must be a number, or a number for each worker such as 64,32,32") from None
  return sizes[0] if len(sizes) == 1 else sizes


def first_batch_size(value: Union[int, List[int]]) -> int:
  """The batch size of worker 0. Evaluation and prediction use it as well."""
  return value[0] if isinstance(value, list) else value


class StalenessPolicy(NamedTuple):
  """The measures of an asynchronous worker against staleness; None or False: off."""

  max_lead: Optional[int] = None  # steps that a worker may be ahead of the slowest
  drop: Optional[int] = None  # the highest age of a gradient that is applied, in global steps
  damp: bool = False  # whether the learning rate is divided by the gradient's age
  warm_up: Optional[int] = None  # global steps between the starts of two workers


class SavePolicy(NamedTuple):
  """When the chief saves, and how many checkpoints stay."""

  secs: Optional[float] = 600.0  # between two saves; None: `steps` counts
  steps: Optional[int] = None  # global steps between two saves
  keep: int = 5  # checkpoints


def parse_save_checkpoints(text: str) -> SavePolicy:
  """Parses --save_checkpoints; raises ValueError."""
  policy = {}
  for part in text.split(","):
    name, _, number = part.strip().partition(":")
    if name not in SavePolicy._fields or name in policy:
      raise ValueError("must be secs:X or steps:N, and may have keep:N, with a comma between them")
    try:
      policy[name] = float(number) if name == "secs" else int(number)
    except ValueError:
      policy[name] = 0
    if not 0 < policy[name] < float("inf"):
      raise ValueError("must have a number above 0 after %s:" % name)
  if "steps" in policy:
    if "secs" in policy:
      raise ValueError("must have secs:X or steps:N, not both")
    policy["secs"] = None
  return SavePolicy(**policy)


def parse_staleness_policy(text: str) -> StalenessPolicy:
  """Parses --staleness_policy; raises ValueError."""
  policy = {}
  for part in text.split(",") if text != "none" else []:
    name, has_number, number = part.strip().partition(":")
    if name not in StalenessPolicy._fields or bool(has_number) != (name != "damp"):
      raise ValueError("must be none, or some of max_lead:N, drop:N, damp and warm_up:N with "
                       "commas between them")
    least = 0 if name == "drop" else 1
    if has_number and (not number.isdigit() or int(number) < least):
      raise ValueError("must have a number of at least %d after %s:" % (least, name))
    policy[name] = int(number) if has_number else True
  return StalenessPolicy(**policy)


def parse_trace_steps(text: str) -> Tuple[int, int]:
  """Parses --trace_steps to the first step and the step after the last; raises ValueError."""
  first, _, end = text.partition(":")
  if not first.isdigit() or not end.isdigit():
    raise ValueError("must be two numbers such as 100:105, for the steps 100 to 104")
  if not 0 < int(end) - int(first) <= _MOST_TRACED:
    raise ValueError("must have 1 to %d steps: the second number is the step after the last" %
                     _MOST_TRACED)
  return int(first), int(end)


def parse_restart(text: str) -> int:
  """Parses --restart to the highest number of restarts of each task; raises ValueError."""
  name, has_number, number = text.partition(":")
  if name == "on_failure" and not has_number:
    return _MAX_RESTARTS
  if name == "on_failure" and number.isdigit() and int(number):
    return int(number)
  if text != "never":
    raise ValueError("must be never, on_failure, or on_failure:N with N restarts of at least 1")
  return 0


def parse_sync_replicas(value: Union[bool, int, str]) -> Union[bool, int]:
  """Parses --sync_replicas: whether updates are synchronous, or the gradients in an update.

  Raises ValueError. 1 is refused, because it may mean true, or one gradient.
  """
  text = str(value).lower()
  if text in ("true", "t", "false", "f", "0"):
    return text.startswith("t")
  if not text.isdigit() or int(text) < 2:
    raise ValueError("must be true, false, or from 2 on the gradients in an update")
  return int(text)


def split_learning_rate(value: Union[None, float, str]
                        ) -> Tuple[Optional[float], Optional[Schedule]]:
  """Returns the rate and the schedule of --learning_rate, each None if the option lacks it.

  Raises ValueError.
  """
  if value is None:
    return None, None
  first, has_more, rest = str(value).partition(",")
  try:
    rate = float(first)
  except ValueError:
    return None, parse_schedule(str(value))
  if not rate > 0:
    raise ValueError("must be above 0")
  return rate, parse_schedule(rest) if has_more else None


def parse_learning_rate(text: str) -> Union[float, str]:
  """Parses --learning_rate to a number if it has no schedule, else to its text."""
  rate, schedule = split_learning_rate(text)
  return text if rate is None or schedule is not None else rate


def split_stall_after(value: Union[float, str]) -> Tuple[float, bool]:
  """Returns the seconds of --stall_after, and whether the worker fails; raises ValueError."""
  first, fails, word = str(value).partition(":")
  try:
    seconds = float(first)
  except ValueError:
    seconds = -1.0
  if not seconds >= 0 or fails and (word != "fail" or not seconds):
    raise ValueError("must be seconds from 0 on, or seconds above 0 with :fail, such as 600:fail")
  return seconds, bool(fails)


def parse_stall_after(text: str) -> Union[float, str]:
  """Parses --stall_after to a number if it has no :fail, else to its text."""
  seconds, fails = split_stall_after(text)
  return text if fails else seconds


class HeartbeatTimeout(NamedTuple):
  """The seconds of --heartbeat_timeout."""

  silence: float  # until a task counts as lost
  absence: Optional[float] = None  # that a ps may stay away; None: as long


def parse_heartbeat_timeout(text: str) -> HeartbeatTimeout:
  """Parses --heartbeat_timeout; raises ValueError."""
  try:
    seconds = [float(number) for number in text.split(":")]
  except ValueError:
    seconds = []
  if not 1 <= len(seconds) <= 2 or not all(0 < number < float("inf") for number in seconds):
    raise ValueError("must be seconds above 0, or two such numbers as in 30:300")
  return HeartbeatTimeout(*seconds)


class Threads(NamedTuple):
  """The threads of a task's TensorFlow; None: as many as the machine and its other tasks leave."""

  inter_op: Optional[int] = None  # for operations that run in parallel
  intra_op: Optional[int] = None  # inside an operation

  def __str__(self):
    return AUTO if self.inter_op is None else "%d:%d" % self


def parse_threads(text: str) -> Threads:
  """Parses --threads; raises ValueError."""
  numbers = text.split(":")
  if text == AUTO:
    return Threads()
  if len(numbers) > 2 or not all(number.isdigit() and int(number) for number in numbers):
    raise ValueError("must be auto, a number from 1 on, or two numbers such as 4:2")
  return Threads(int(numbers[0]), int(numbers[-1]))


def parse_gpu_memory(text: str) -> Dict[str, object]:
  """Parses --gpu_memory to arguments of `make_session_config`; raises ValueError."""
  if text == GPU_GROW:
    return {"gpu_growth": True}
  if text == GPU_ALL:
    return {"gpu_growth": False}
  if text in (GPU_NONE, AUTO):
    return {}
  try:
    fraction = float(text)
  except ValueError:
    fraction = 0.0
  if not 0.0 < fraction <= 1.0:
    raise ValueError("must be auto, none, grow, all, or a number above 0 and at most 1")
  return {"gpu_memory_fraction": fraction}


def _problem_of_parsing(parse: Callable[[str], object]) -> Callable[[object], str]:
  """Returns the `Option.check` that tries a parser."""
  def check(value) -> str:
    try:
      parse(value)
    except ValueError as error:
      return str(error)
    return ""

  return check


def _problem_of_decay(value) -> str:
  return "" if 0 < value < 1 else "must be above 0 and below 1"


def _problem_of_batch_size(value) -> str:
  sizes = value if isinstance(value, list) else [value]
  return "" if sizes and min(sizes) > 0 else "must be above 0"


def parse_steps_per_execution(text: str) -> Union[str, int]:
  """Parses --steps_per_execution: "auto", or a number of steps; raises ValueError."""
  if text == AUTO:
    return AUTO
  if not str(text).isdigit() or int(text) < 1:
    raise ValueError("must be auto, or a number of steps from 1 on")
  return int(text)


def parse_overlap(text: Union[str, int]) -> Union[str, int]:
  """Parses --overlap: "none", "prefetch", or a number of steps; raises ValueError."""
  if text in (OVERLAP_NONE, OVERLAP_PREFETCH):
    return text
  if not str(text).isdigit() or int(text) < 2:
    raise ValueError("must be none, prefetch, or a number of steps from 2 on")
  return int(text)


def parse_verbosity(text: str) -> str:
  """Parses --verbosity: a name, or a number as in absl."""
  absl_levels = {"1": "debug", "0": "info", "-1": "warning", "-2": "error", "-3": "fatal"}
  value = absl_levels.get(str(text), str(text).lower())
  if value not in VERBOSITIES:
    raise ValueError("must be one of %s" % ", ".join(VERBOSITIES))
  return value


def _is_own_graph(options: "Options") -> bool:
  return options.replication == BETWEEN_GRAPH


def _is_asynchronous(options: "Options") -> bool:
  """Whether each worker updates the variables on the ps without the others."""
  return _is_own_graph(options) and not options.is_synchronous


_NEEDS_SYNC = Veto(lambda options: not options.is_synchronous,
                   "applies to synchronous updates: give --sync_replicas too")
_NEEDS_OWN_GRAPH = Veto(lambda options: not _is_own_graph(options),
                        "needs --replication=between_graph, the default")
# In-graph and all-reduce replicas make each update from the gradients of all workers, and training
# ends for all workers when the data of any worker end.
_NEEDS_OWN_SYNC = Veto(lambda options: not _is_own_graph(options),
                       "needs --replication=between_graph, the default, and --sync_replicas")
_NEEDS_PS = Veto(lambda options: options.replication == ALL_REDUCE,
                 "applies to variables on ps, and --replication=all_reduce has none")
_NEEDS_ASYNC = Veto(
  lambda options: not _is_asynchronous(options),
  "applies to asynchronous updates: it needs --replication=between_graph, the default, and no "
  "--sync_replicas")
_SEVERAL_STEPS = (
  _NEEDS_OWN_GRAPH,
  Veto(lambda options: options.is_synchronous,
       "cannot go with --sync_replicas: a synchronous step begins when all workers have made the "
       "previous step"),
  Veto(lambda options: options.staleness.max_lead is not None,
       "cannot go with --staleness_policy=max_lead: a worker waits before each step"),
  Veto(lambda options: options.prefetch,
       "cannot go with --overlap=prefetch: it fetches the values of one step ahead"))


def _breaks_for_several(rule: Veto, options: "Options") -> bool:
  return options.run_steps > 1 and rule.is_broken(options)


_CLUSTER = "The cluster (or TF_CONFIG in the environment)"
_COUNTS = "The number of tasks"

TABLE: Tuple[Option, ...] = (
  Option("program", "The program to train: a module's name, or the path of a .py file, with the "
         "functions input_fn(mode, shard) and model_fn(features, labels, mode). It needs no flag: "
         "tf1ps-local digits.py. A ps only needs it for the flags that it defines.",
         "The program", _OF_JOB + ("predict",), first=True),
  Option("batch_size", "Examples in a batch of a worker: one number for all workers, or a number "
         "for each, such as 64,32,32, which asynchronous updates alone take (no --sync_replicas).",
         "The program", _WITH_PROGRAM, parse_batch_size, 32,
         placeholder="N[,N]", check=_problem_of_batch_size, trains=True, rules=(Veto(
           lambda options: isinstance(options.batch_size, list) and not _is_asynchronous(options),
           "with a number for each worker " + _NEEDS_ASYNC.text),), first=True),
  Option("on_bad_record", "What happens to a record that cannot be decoded. fail ends the task and "
         "names the file and line; skip leaves the record out and counts it, until more than 1 % "
         "are bad; skip:0.05 allows 5 %. It applies to input by tf1ps.pipeline and by queue "
         "runners.", "The program", _WITH_PROGRAM, default=FAIL_ON_BAD_RECORD,
         placeholder="fail|skip[:R]", check=_problem_of_parsing(parse_bad_record_policy),
         trains=True),

  Option("num_ps", "The number of ps: tf1ps-local starts them, and of the tasks that a scheduler "
         "starts the first are ps. 1 by default, and none with all_reduce.",
         _COUNTS, ("local",) + _RESOLVING, int, first=True),
  Option("num_workers", "Workers to start; worker 0 is the chief.", _COUNTS, ("local",), int, 2,
         first=True),
  Option("evaluator", "Have an evaluator: tf1ps-local starts it, and of the tasks that a "
         "scheduler starts the last is the evaluator. It needs --checkpoint_dir.",
         _COUNTS, ("local",) + _ON_CLUSTER + ("reset",), bool, False, first=True),
  Option("dry_run", "Make one step on one batch in this process, print the inputs, variables, loss "
         "and the meaning of the flags, and end: no task is started, and nothing is written.",
         "The local cluster", ("local",), bool, False, first=True),
  Option("restart", "What happens when a task fails or is killed. never: the job ends. on_failure: "
         "the task is started again at its address, after a pause that grows, 5 times at most; "
         "on_failure:N: N times.", "The local cluster", ("local",), default="never",
         placeholder="never|on_failure[:N]", check=_problem_of_parsing(parse_restart), first=True),
  Option("log_dir", "The directory for the output of the tasks, one file each. Without it "
         "tf1ps-local makes one under the system's temporary directory, and removes it after a job "
         "that ends with 0; tf1ps-ssh writes no files.", "The local cluster", ("local", "ssh"),
         first=True),

  Option("ps_hosts", "Addresses of the ps tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",) + _ASKING, first=True),
  Option("worker_hosts", "Addresses of the worker tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",), first=True),
  Option("job_name", "This task's job; by default the one that the program runs.", _CLUSTER,
         _ON_CLUSTER, first=True),
  Option("task_index", "This task's index in its job. A job of one task needs none.",
         _CLUSTER, _ON_CLUSTER, int, first=True),
  Option("cluster_resolver", "Where the cluster and this task are described. flags: in the flags "
         "above; tf_config, volcano: in TF_CONFIG; slurm, jobset, indexed_job: in the variables of "
         "that scheduler. auto takes the first of these that is there, in the order flags, "
         "TF_CONFIG, JobSet, Indexed Job, Slurm; tf1ps-evaluator needs no cluster, and takes flags "
         "and TF_CONFIG.", _CLUSTER, _RESOLVING, default=AUTO_RESOLVER, values=RESOLVERS,
         first=True),
  Option("port", "The port of the tasks that a scheduler or tf1ps-ssh starts; those of Slurm and "
         "of tf1ps-ssh on one machine count up from it.", _CLUSTER, _RESOLVING + ("ssh",), int,
         DEFAULT_PORT, above=0),

  Option("container", "The container of the job's state on the ps. All tasks need the same. "
         "The default follows from --job_workers, so jobs that share a ps differ.",
         "The job", _OF_JOB),
  Option("job_workers", "The workers of this job, if several jobs share the ps, such as 2-3; all "
         "by default.", "The job", _OF_JOB, placeholder="N-N"),
  Option("persistent", "Serve any number of jobs, until SIGTERM or Ctrl-C.", "The job", ("ps",),
         bool, False, first=True),
  Option("tls_dir", "Encrypt and authenticate the links between the tasks: a directory with this "
         "task's cert.pem, its key.pem, and ca.pem, the certificate of the job's authority. "
         "tf1ps-certs makes them. All tasks need it; an evaluator, which has no links, ignores "
         "it.", "Links", _OF_JOB + ("reset",) + _ASKING, placeholder="DIR"),

  Option("replication", "between_graph: each worker runs a graph of its own on the variables of "
         "the ps. in_graph: the chief runs one graph on all workers. all_reduce: each worker keeps "
         "the variables, and there is no ps.", "Replication", _TRAINING, default=BETWEEN_GRAPH,
         values=REPLICATIONS, is_shared=lambda options: True, first=True),
  Option("num_clones", "The devices of a worker that divide its batch: its GPUs, or CPU devices if "
         "it has none.", "Replication", _TRAINING, int, 1, above=0,
         rules=(Veto(lambda options: options.replication == IN_GRAPH and not options.is_synchronous,
                     "with --replication=in_graph needs --sync_replicas: clones make one gradient "
                     "together, and asynchronous in-graph replicas update one by one"),)),

  Option("steps", "The global step at which the job ends, whenever it was started.", "Training",
         _TRAINING, int, above=0, first=True),
  Option("epochs", "How often the workers together go through the data, whenever the job was "
         "started.", "Training", _TRAINING,
         int, above=0, first=True),
  Option("examples", "The examples that the workers together train on, whenever the job was "
         "started.", "Training", _TRAINING, int, above=0),
  Option("optimizer", "The optimizer, if the program has none of its own: %s. A number behind it "
         "is the momentum of momentum:0.9 and nesterov:0.9, and the weight decay of adamw:0.01: an "
         "update takes this part of each value, times the learning rate." % ", ".join(OPTIMIZERS),
         "Training", _TRAINING, default="adam", placeholder="NAME[:X]",
         check=_problem_of_parsing(parse_optimizer), first=True),
  Option("learning_rate", "The learning rate, by default the optimizer's usual rate. Behind a "
         "comma, how it changes with the global step: exponential:1000:0.9, cosine:5000, "
         "linear:5000, or piecewise:1000:0.1:5000:0.01. Each may have warmup:500 before it and a "
         "comma, as in 0.1,warmup:500,cosine:5000.", "Training", _TRAINING, parse_learning_rate,
         placeholder="X[,SCHEDULE]", check=_problem_of_parsing(split_learning_rate), rules=(
           Veto(lambda options: options.optimizer == "ftrl" and options.schedule is not None
                and 0.0 in options.schedule.factors,
                "ends with a learning rate of 0, by which --optimizer=ftrl divides: give a last "
                "factor, such as cosine:5000:0.01"),), first=True),
  Option("clip_norm", "The highest global norm of an update's gradient; a longer gradient "
         "is clipped.", "Training", _TRAINING, float, above=0),
  Option("moving_average_decay", "Keep moving averages of the trained variables, such as with "
         "0.999. Evaluation, prediction and export use them in place of the variables.",
         "Training", _TRAINING, float, check=_problem_of_decay,
         is_shared=lambda options: options.moving_average_decay is not None),
  Option("sync_replicas", "All workers make each update together, by the mean of their gradients. "
         "Without it each worker updates on its own; all_reduce is always synchronous. "
         "--sync_replicas=N takes the first N gradients, N below the number of workers, so that an "
         "update does not wait for the slowest.", "Training", _TRAINING, parse_sync_replicas, False,
         placeholder="[=N]", bare=True, check=_problem_of_parsing(parse_sync_replicas), rules=(
           Veto(lambda options: options.replicas_to_aggregate is not None
                and not _is_own_graph(options),
                "with a number needs --replication=between_graph, the default"),),
         is_shared=lambda options: True, first=True),
  Option("on_uneven", "What happens when the data of one worker end and updates are synchronous. "
         "stop_all: training ends for all. pad: the worker takes part without a gradient. shrink: "
         "the others go on without it. repeat: its data begin again until all workers have come "
         "to the end of theirs.", "Training", _TRAINING, default=STOP_ALL, values=ON_UNEVEN, rules=(
           _NEEDS_SYNC, _NEEDS_OWN_SYNC,
           Veto(lambda options: options.on_uneven == REPEAT and options.shard == SHARD_DYNAMIC,
                "needs a worker's own data, and with --shard=dynamic no worker has any: give "
                "--on_uneven=shrink or pad"))),
  Option("staleness_policy", "What asynchronous workers do about stale gradients. max_lead:N makes "
         "a worker wait while it is N steps ahead of the slowest; drop:N drops a gradient that is "
         "more than N global steps old; damp divides the learning rate by the gradient's age; "
         "warm_up:N starts with worker 0 and adds a worker every N global steps. Put commas "
         "between several.", "Training", _TRAINING, default="none", placeholder="none|POLICIES",
         check=_problem_of_parsing(parse_staleness_policy), rules=(_NEEDS_ASYNC,)),
  Option("shard", "How data are divided among the workers; by default as the program asks its "
         "shard.", "Training", _TRAINING, values=SHARDS,
         is_shared=lambda options: options.shard == SHARD_DYNAMIC, rules=(
           _NEEDS_OWN_GRAPH._replace(
             is_broken=lambda options: options.shard == SHARD_DYNAMIC
             and not _is_own_graph(options)),
           Veto(lambda options: options.shard == SHARD_DYNAMIC
                and options.is_synchronous and options.on_uneven == STOP_ALL,
                "gives workers unequal shares, and with --sync_replicas the first end of data ends "
                "training: give --on_uneven=shrink or pad")), first=True),
  Option("partition_bytes", "Divide each trainable variable of more bytes by its rows into "
         "shards of at most this size, on all ps; by default none is divided.", "Training",
         _TRAINING, int, above=0, rules=(_NEEDS_PS,),
         is_shared=lambda options: options.partition_bytes is not None),

  Option("checkpoint_dir", "The directory of the job's checkpoints. The chief restores from it and "
         "saves there; tf1ps-evaluator and tf1ps-predict read there. Without it nothing is "
         "kept.", "Checkpoints", _WITH_PROGRAM, check=directory_problem, trains=True, first=True),
  Option("checkpoint", "The checkpoint to use: latest, or its path without the endings of its "
         "files, such as DIR/model.ckpt-100. tf1ps-evaluator evaluates it and leaves, instead of "
         "following the job; tf1ps-predict takes the latest by default.", "Checkpoints",
         ("evaluator", "predict"), placeholder="latest|PATH", first=True),
  Option("keep_best", "Keep the best checkpoint in CHECKPOINT_DIR/best, by this metric of the "
         "evaluator: accuracy, or accuracy:max. Without :min or :max, a name with loss or error "
         "in it is minimised, others are maximised. With :N, such as accuracy:5, end the job for "
         "all workers when N evaluations in a row were no better, or with :N:D not by more than D, "
         "such as accuracy:5:0.001.", "Checkpoints",
         ("local", "evaluator"), parse_metric_goal, placeholder="METRIC[:min|max][:N[:D]]",
         first=True),
  Option("save_checkpoints", "When checkpoints are saved, and how many are kept. secs:X: every X "
         "seconds; steps:N: every N global steps instead; keep:N: the last N, 5 by default. Put "
         "commas between them, as in steps:500,keep:10.", "Checkpoints", _TRAINING,
         default="secs:600", placeholder="PARTS",
         check=_problem_of_parsing(parse_save_checkpoints), first=True),
  Option("ps_recovery", "What is restored when a ps was lost and has come back. all: the last "
         "checkpoint, on all ps, so that the values belong together. lost_only: only what that ps "
         "had, while the other ps keep their newer values.", "Checkpoints", _TRAINING,
         default=PS_RECOVERIES[0], values=PS_RECOVERIES, rules=(_NEEDS_ASYNC,)),
  Option("save_summary_steps", "The chief's steps between summaries.", "Checkpoints", _TRAINING,
         int, 100, above=0),
  Option("trace_steps", "Trace these steps of each worker, counted from its start: 100:105 are the "
         "steps 100 to 104. Each worker writes a Chrome trace of all tasks and a summary into "
         "--checkpoint_dir.", "Checkpoints", _TRAINING, placeholder="N:N",
         check=_problem_of_parsing(parse_trace_steps), rules=(
           Veto(lambda options: not options.checkpoint_dir,
                "needs --checkpoint_dir, the directory of the traces"),)),

  Option("wire_dtype", "The type in which float32 values and gradients travel. int8 is for "
         "gradients alone. Variables stay float32.", "Transfer", _TRAINING, default="float32",
         values=WIRE_DTYPES, rules=(_NEEDS_PS,),
         # The gradients of all workers are added up in one type.
         is_shared=lambda options: options.sync_replicas),
  Option("steps_per_execution", "The steps of an asynchronous worker in one run of its session, "
         "each on a batch of its own. They save trips to the ps. Hooks, stops and checkpoints act "
         "between runs. auto: as many as pay, by the job's own times, at most 16.", "Transfer",
         _TRAINING, parse_steps_per_execution, AUTO, placeholder="N|auto",
         check=_problem_of_parsing(parse_steps_per_execution), rules=tuple(
           rule._replace(is_broken=functools.partial(_breaks_for_several, rule))
           for rule in _SEVERAL_STEPS)),
  Option("overlap", "What an asynchronous worker does beside a step. prefetch: it fetches the "
         "values of the next step, so gradients are one update older. N: N steps run at the same "
         "time; one travels while another computes on older values.", "Transfer", _TRAINING,
         parse_overlap,
         OVERLAP_NONE, placeholder="none|prefetch|N", check=_problem_of_parsing(parse_overlap),
         rules=(
           _NEEDS_ASYNC,
           Veto(lambda options: options.steps_in_flight > 1
                and options.staleness.max_lead is not None,
                "cannot run several steps at the same time under --staleness_policy=max_lead: a "
                "worker waits before each step"),
           Veto(lambda options: options.shard == SHARD_DYNAMIC,
                "cannot go with --shard=dynamic: its passes end in the middle of a step, and it "
                "needs the order in which batches were trained on"))),
  Option("gradient_accumulation_steps", "The batches of a worker whose gradients travel as one, "
         "their mean.", "Transfer", _TRAINING, int, 1, above=0, rules=(
           _NEEDS_OWN_GRAPH,
           Veto(lambda options: options.steps_in_flight > 1,
                "cannot go with several steps at the same time, --overlap=N: the gradients of one "
                "step at a time are added up"))),

  Option("start_timeout", "How long to wait for the other tasks at the start.",
         "Limits, in seconds", _OF_JOB + _ASKING, float, 60.0,
         {"ps": 600.0, "status": 10.0, "top": 10.0}, above=0, trains=True),
  Option("heartbeat_timeout", "How long a task may be silent before it counts as lost. The second "
         "number of 30:300 is how long a ps, or with all_reduce a worker, may stay away before the "
         "job ends; by default both are the same. Give the time in which your scheduler starts a "
         "lost task again.", "Limits, in seconds", _OF_JOB, parse_heartbeat_timeout, "30",
         placeholder="X[:X]"),
  Option("grace", "How long a task may take to end after SIGTERM. The chief saves meanwhile, and a "
         "ps waits for that. Give a few seconds less than your scheduler, which kills the task "
         "then.", "Limits, in seconds", _WITH_PS + ("ssh",), float, GRACE, above=0),

  Option("stall_after", "How long a worker may make no step until it prints the stacks of its "
         "threads and what it waits for; 0: for ever. With :fail, such as 600:fail, it ends with "
         "an error after the same time once more, unless it waits for another worker.",
         "Limits, in seconds", _TRAINING, parse_stall_after, 600.0, placeholder="X[:fail]",
         check=_problem_of_parsing(split_stall_after)),

  Option("threads", "TensorFlow's threads. auto: as many as the machine and the other tasks on it "
         "leave. N: N for operations side by side and N inside of one operation; N:M: N and M.",
         "Threads and GPUs", _OF_JOB, parse_threads, AUTO, placeholder="auto|N[:M]"),
  Option("gpu_memory", "The memory that a task takes of each GPU: all of it, as much as it needs "
         "(grow), or a part between 0 and 1. auto: all of it, and as much as they need where "
         "workers share a GPU. With none the task sees no GPU. The workers of a host divide its "
         "GPUs.", "Threads and GPUs", _OF_JOB,
         default=AUTO, defaults={"ps": GPU_NONE, "evaluator": GPU_NONE},
         placeholder="auto|none|grow|all|X", check=_problem_of_parsing(parse_gpu_memory),
         first=True),

  Option("input", "A file of new data to predict, in place of the program's: .csv with the "
         "features' names in its first line, .jsonl, .npz or .tfrecord.", "Output", ("predict",),
         placeholder="PATH", first=True),
  Option("output", "The file to write predictions into: .csv, .jsonl or .npz. A name without an "
         "ending is the directory of a SavedModel.", "Output", ("predict",), first=True),

  Option("metrics_port", "Serve /metrics for Prometheus, /healthz and /readyz on this port of "
         "127.0.0.1, or at HOST:PORT. tf1ps-local counts up from it: each task has its own. By "
         "default nothing is served.", "Output", _OF_JOB, parse_metrics_address,
         placeholder="[HOST:]PORT", first=True),
  Option("verbosity", "The least severe messages that TensorFlow logs. info shows those of its "
         "start, warning hides them.", "Output", PROGRAMS, parse_verbosity, "warning",
         placeholder="LEVEL", first=True),
  Option("log_format", "The form of the output. json: one JSON object per line, with time, "
         "severity, task, message, and the figures of a progress; tf1ps-status prints "
         "its result as one object.", "Output",
         _OF_JOB + ("predict", "reset", "ssh", "status"),
         default=LOG_FORMATS[0], values=LOG_FORMATS),
)
BY_NAME = {option.name: option for option in TABLE}


# Flags that are gone, each with its remedy. A program refuses them with this advice.
OLD_FLAGS = {
  "web": "give http://[HOST:]PORT, without a flag",
  "replicas_to_aggregate": "give --sync_replicas=N",
  "recovery_timeout": "give --heartbeat_timeout=30:X",
  "ssh": "set ssh's options for the hosts in ~/.ssh/config",
  "chdir": "run tf1ps-ssh in the folder of this name",
  "chief_hosts": "leave it out, because worker 0 is the chief, or give TF_CONFIG",
  "save_checkpoints_secs": "give --save_checkpoints=secs:X",
  "save_checkpoints_steps": "give --save_checkpoints=steps:N",
  "keep_checkpoint_max": "give --save_checkpoints=keep:N, with secs:X or steps:N in the same flag",
  "json": "give --log_format=json",
  "prefetch": "give --overlap=prefetch",
  "steps_in_flight": "give --overlap=N",
  "once": "give --checkpoint=latest",
  "early_stopping": "give --keep_best=METRIC:N",
  "export_dir": "give --output=DIR, a name without an ending",
  "target": "give grpc://HOST:PORT, without a flag",
  "queues": "give queue:NAME for each, without a flag",
  "end_timeout": "set end_timeout in TF1PS_TIMING",
  "max_restarts": "give --restart=on_failure:N",
  "weight_decay": "give --optimizer=adamw:X",
  "learning_rate_decay": "give --learning_rate=RATE,SCHEDULE",
  "on_stall": "give --stall_after=SECONDS:fail",
  "inter_op_parallelism_threads": "give --threads=N:M, and N is this number",
  "intra_op_parallelism_threads": "give --threads=N:M, and M is this number",
  "variables": "leave it out, because programs have resource variables, and "
               "tf.variable_scope(use_resource=False) makes others",
  "scale_learning_rate": "give the --learning_rate that you want",
  "l2_regularization": "add the penalty to the loss in model_fn",
  "pack_bytes": "set TF1PS_PACK_BYTES in the environment of all tasks",
  "summary_image": "leave it out, because TensorBoard draws the same curves from --checkpoint_dir",
  "eval_steps": "give --evaluator, and --save_checkpoints=steps:N for the steps between them",
  "tensorboard": "run tensorboard with the directory of --checkpoint_dir",
}


def of_program(program: str) -> List[Option]:
  """The options of a program, in the order of --help."""
  as_well = _ON_CLUSTER if program == "task" else ()  # the programs that it runs
  return [option for option in TABLE if {program, *as_well} & set(option.programs)]


_TRAINED_BY = [option for option in TABLE if option.programs == _TRAINING or option.trains]
_Values = collections.namedtuple(
  "_Values", [option.name for option in _TRAINED_BY] + ["pack_bytes", "config"],
  defaults=[option.default for option in _TRAINED_BY] + [DEFAULT_PACK_BYTES, None])


class Options(_Values):
  """The values that the workers of a job train by: a field for each such option of `TABLE`.

  Two more fields have no flag: `pack_bytes`, for which tasks read TF1PS_PACK_BYTES (variables of
  fewer bytes travel together), and `config`, the tf.ConfigProto of the sessions.
  """

  __slots__ = ()

  if TYPE_CHECKING:  # a type checker does not read the table
    _fields: Tuple[str, ...]

    def __getattr__(self, name: str) -> Any: ...
    def _replace(self, **values: Any) -> "Options": ...

  @property
  def is_synchronous(self) -> bool:
    """Whether several workers make one update together."""
    return bool(self.sync_replicas) or self.replication == ALL_REDUCE

  @property
  def replicas_to_aggregate(self) -> Optional[int]:
    """The gradients in a synchronous update, or None for one from each worker."""
    return None if isinstance(self.sync_replicas, bool) else self.sync_replicas

  @property
  def rate(self) -> Optional[float]:
    """The learning rate at the start, or None for the optimizer's usual rate."""
    return split_learning_rate(self.learning_rate)[0]

  @property
  def schedule(self) -> Optional[Schedule]:
    """How the learning rate changes with the global step, or None."""
    return split_learning_rate(self.learning_rate)[1]

  @property
  def stall(self) -> Tuple[float, bool]:
    """The seconds of `stall_after`, and whether the worker fails after twice that time."""
    return split_stall_after(self.stall_after)

  @property
  def saves(self) -> SavePolicy:
    """The parts of `save_checkpoints`."""
    return parse_save_checkpoints(self.save_checkpoints)

  @property
  def staleness(self) -> StalenessPolicy:
    """The parts of `staleness_policy`."""
    return parse_staleness_policy(self.staleness_policy)

  @property
  def prefetch(self) -> bool:
    """Whether a worker fetches the values of the next step during a step."""
    return self.overlap == OVERLAP_PREFETCH

  @property
  def steps_in_flight(self) -> int:
    """The steps of a worker that run at the same time."""
    return 1 if self.overlap in (OVERLAP_NONE, OVERLAP_PREFETCH) else int(self.overlap)

  @property
  def run_steps(self) -> int:
    """The number of steps in a run that is not near a stop, according to the options."""
    return 1 if self.steps_per_execution == AUTO else int(self.steps_per_execution)

  @property
  def finds_run_steps(self) -> bool:
    """Whether the loop finds the number of steps per run by itself (auto_steps.py)."""
    return (self.steps_per_execution == AUTO and self.steps_in_flight == 1
            and not any(rule.is_broken(self) for rule in _SEVERAL_STEPS))

  @property
  def overlaps(self) -> bool:
    """Whether even a single worker has stale gradients."""
    return self.overlap != OVERLAP_NONE


def check_options(options: Options) -> None:
  """Checks each value by itself, then the combinations.

  Raises:
    ValueError: an option is wrong; the message names the first wrong option and its remedy.
  """
  for option in _TRAINED_BY:
    value = getattr(options, option.name)
    problem = option.problem_of(value)
    if problem:
      raise ValueError("--%s %s, got %r" % (option.name, problem, value))
  if not (options.steps or options.epochs or options.examples):
    raise ValueError("the job has no end: give --steps, --epochs or --examples")
  for option in _TRAINED_BY:
    value = getattr(options, option.name)
    for rule in option.rules:
      if value != option.default and rule.is_broken(options):
        raise ValueError("%s %s" % (as_flag(option.name, value), rule.text))


def shared_by_workers(options: Options) -> List[str]:
  """The options that all workers of a job must share, as flags: "--replication=in_graph"."""
  flags = [as_flag(option.name, getattr(options, option.name))
           for option in TABLE if option.is_shared is not None and option.is_shared(options)]
  if options.sync_replicas:
    flags.append("%s=%d" % (PACK_VARIABLE, options.pack_bytes))
  return flags


def as_flag(name: str, value) -> str:
  """An option as a flag: "--steps=5", "--sync_replicas" or "--nosync_replicas"."""
  if isinstance(value, bool):
    return "--%s%s" % ("" if value else "no", name)
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return "--%s=%s" % (name, value)


def share_of(options: Options, count: int) -> Optional[float]:
  """The ratio of all workers' examples to the examples that the chief counts; None: it varies.

  Args:
    options: the job's options.
    count: the number of workers.
  """
  if options.replication == IN_GRAPH:
    return 1.0  # the chief counts for all
  if options.is_synchronous:
    return float(options.replicas_to_aggregate or count)
  return None


def bad_records_of(options: Options):
  """Makes the `BadRecords` of --on_bad_record."""
  from tf1ps.pipeline import BadRecords  # imports TensorFlow

  return BadRecords(*parse_bad_record_policy(options.on_bad_record))


def shard_of(options: Options, index: int, count: int):
  """Makes the `Shard` of a worker's data.

  Args:
    options: the job's options.
    index: the worker's index, from 0.
    count: the number of workers.

  Raises:
    ValueError: --batch_size has several sizes, but not one for each worker.
  """
  from tf1ps.pipeline import BATCHES_PER_BLOCK, Shard  # imports TensorFlow

  given = options.batch_size
  sizes = given if isinstance(given, list) else [given] * count
  if len(sizes) != count:
    raise ValueError("%s has %d numbers, but the job has %d workers" % (
      as_flag("batch_size", given), len(sizes), count))
  return Shard(
    mode="train", index=index, count=count, batch_size=sizes[index], epochs=options.epochs,
    policy=options.shard, block_size=BATCHES_PER_BLOCK * max(sizes))
