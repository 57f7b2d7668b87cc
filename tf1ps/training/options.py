"""The options of all programs.

`TABLE` describes each option once. Everything else comes from it:

  the flags and --help of each program   tf1ps/cli/flags.py
  docs/flags.md                          `python -m tf1ps.cli.flags > docs/flags.md`
  `Options`                              the values that the workers of a job train by
  `check_options`                        checks values, and refuses options that exclude each other
  `shared_by_workers`                    the options that a worker's signature contains

To add an option, add it to the table and, if workers train by it, to `Options`. This module does
not import TensorFlow, because the programs define their flags before that import.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from tf1ps.checkpoint import directory_problem
from tf1ps.cluster import AUTO_RESOLVER, DEFAULT_PORT, RESOLVERS
from tf1ps.compat import GRACE, VERBOSITIES
from tf1ps.monitoring import parse_metrics_address
from tf1ps.pipeline import (
  DEFAULT_MAX_BAD_RATIO,
  FAIL_ON_BAD_RECORD,
  ON_BAD_RECORD,
  SHARD_DYNAMIC,
  SHARDS,
)
from tf1ps.program import (
  OPTIMIZERS,
  VARIABLES,
  Schedule,
  parse_early_stopping,
  parse_metric_goal,
  parse_schedule,
)
from tf1ps.replication import ON_UNEVEN, REPEAT, STOP_ALL
from tf1ps.session import PS_RECOVERIES
from tf1ps.transfer import DEFAULT_PACK_BYTES, WIRE_DTYPES

PROGRAMS = (
  "local", "worker", "ps", "evaluator", "task", "predict", "reset", "ssh", "status", "top", "tune")
_ASKING = ("status", "top")
_TRAINING = ("local", "worker")
_ON_CLUSTER = ("worker", "ps", "evaluator")
_RESOLVING = _ON_CLUSTER + ("reset",) + _ASKING  # those that find a cluster in the environment
_OF_JOB = ("local", "worker", "ps", "evaluator")
_WITH_PS = ("local", "worker", "ps")
_WITH_PROGRAM = ("local", "worker", "evaluator", "predict")

BETWEEN_GRAPH, IN_GRAPH, ALL_REDUCE = REPLICATIONS = ("between_graph", "in_graph", "all_reduce")
GPU_NONE, GPU_GROW, GPU_ALL = "none", "grow", "all"
STALL_REPORT, STALL_FAIL = ON_STALL = ("report", "fail")
RESTART_NEVER, RESTART_ON_FAILURE = RESTARTS = ("never", "on_failure")
LOG_TEXT, LOG_JSON = LOG_FORMATS = ("text", "json")
DEFAULT_MAX_RESTARTS = 5
_MOST_TRACED = 100  # steps, of which a worker keeps the traces: some MB each with a large graph


class Rule(NamedTuple):
  """A combination of options that is refused."""

  is_broken: Callable[["Options"], bool]  # called only if the option does not have its default
  text: str  # the rest of a message that begins with "--name=value "


class Option(NamedTuple):
  """The description of one option."""

  name: str  # the flag, and the field of `Options` where there is one
  help: str  # the text of --help
  group: str  # the heading under which --help shows it
  programs: Tuple[str, ...]  # the programs that have the flag
  parse: Callable[[str], object] = str  # from the text of the flag; raises ValueError
  default: object = None
  defaults: Dict[str, object] = {}  # {program: its default}, where it differs from `default`
  above: Optional[float] = None  # a number must be above this one
  at_least: Optional[float] = None  # a number must not be below this one
  values: Tuple[str, ...] = ()  # the allowed values; () allows any
  rules: Tuple[Rule, ...] = ()  # the combinations that are refused
  # Whether all workers must have the same value, given the options. None: they never need it.
  is_shared: Optional[Callable[["Options"], bool]] = None
  placeholder: str = ""  # the value in --help, such as "NAME,NAME"
  check: Optional[Callable[[object], str]] = None  # returns what is wrong with a value, or ""

  def default_of(self, program: str) -> object:
    """The default in a program."""
    return self.defaults.get(program, self.default)

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
  """Parses --batch_size: one number, or one for each worker with commas between them."""
  try:
    sizes = [int(number) for number in text.split(",")]
  except ValueError:
    raise ValueError("must be a number, or one for each worker such as 64,32,32") from None
  return sizes[0] if len(sizes) == 1 else sizes


def first_batch_size(value: Union[int, List[int]]) -> int:
  """The batch size of worker 0. Evaluation and prediction use it as well."""
  return value[0] if isinstance(value, list) else value


class StalenessPolicy(NamedTuple):
  """The measures of an asynchronous worker against staleness; None and False: not taken."""

  max_lead: Optional[int] = None  # steps that a worker may be ahead of the slowest
  drop: Optional[int] = None  # the highest age of a gradient that is applied, in global steps
  damp: bool = False  # whether the learning rate is divided by the gradient's age
  warm_up: Optional[int] = None  # global steps between the starts of two workers


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
  """Parses --on_bad_record to the policy and the ratio of records that may be skipped."""
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


def parse_trace_steps(text: str) -> Tuple[int, int]:
  """Parses --trace_steps to the first step and the first one after them; raises ValueError."""
  first, _, end = text.partition(":")
  if not first.isdigit() or not end.isdigit():
    raise ValueError("must be two numbers such as 100:105, for the steps 100 to 104")
  if not 0 < int(end) - int(first) <= _MOST_TRACED:
    raise ValueError("must have 1 to %d steps: the second number is the step after the last one" %
                     _MOST_TRACED)
  return int(first), int(end)


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


def _problem_of_png(value) -> str:
  return "" if str(value).endswith(".png") else "must end with .png"


def parse_names(text: str) -> List[str]:
  """Parses names with commas between them."""
  return [name.strip() for name in text.split(",") if name.strip()]


def parse_verbosity(text: str) -> str:
  """Parses --verbosity: a name, or one of absl's numbers."""
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


_NEEDS_SYNC = Rule(lambda options: not options.is_synchronous,
                   "applies to synchronous updates: give --sync_replicas too")
_NEEDS_OWN_GRAPH = Rule(lambda options: not _is_own_graph(options),
                        "needs --replication=between_graph, the default")
# In-graph and all-reduce replicas make each update from the gradients of all workers, and the first
# end of data ends all.
_NEEDS_OWN_SYNC = Rule(lambda options: not _is_own_graph(options),
                       "needs --replication=between_graph, the default, and --sync_replicas")
_NEEDS_PS = Rule(lambda options: options.replication == ALL_REDUCE,
                 "applies to variables on ps, and --replication=all_reduce has none")
_NEEDS_ASYNC = Rule(
  lambda options: not _is_asynchronous(options),
  "applies to asynchronous updates: it needs --replication=between_graph, the default, and no "
  "--sync_replicas")
_SEVERAL_STEPS = (
  _NEEDS_OWN_GRAPH,
  Rule(lambda options: options.is_synchronous,
       "cannot go with --sync_replicas: a synchronous step begins when all workers have made the "
       "one before"),
  Rule(lambda options: options.staleness.max_lead is not None,
       "cannot go with --staleness_policy=max_lead: a worker waits before each step"),
  Rule(lambda options: options.prefetch,
       "cannot go with --prefetch: it fetches the values of one step ahead"))
_CLUSTER = "The cluster (or TF_CONFIG in the environment)"
_COUNTS = "The number of tasks"

TABLE: Tuple[Option, ...] = (
  Option("program", "The program to train: a module's name, or the path of a .py file, with the "
         "functions input_fn(mode, shard) and model_fn(features, labels, mode). A ps only needs it "
         "for the flags that it defines.", "The program", _OF_JOB + ("predict",)),
  Option("batch_size", "Examples in a batch of a worker: one number for all workers, or one for "
         "each, such as 64,32,32.", "The program", _WITH_PROGRAM, parse_batch_size, 32,
         placeholder="N", check=_problem_of_batch_size, rules=(_NEEDS_ASYNC._replace(
           is_broken=lambda options: isinstance(options.batch_size, list)
           and not _is_asynchronous(options)),)),
  Option("variables", "The kind of TensorFlow's variables. All tasks need the same.", "The program",
         _WITH_PROGRAM, default="resource", values=VARIABLES),
  Option("on_bad_record", "What happens to a record that cannot be decoded. fail ends the task and "
         "names the file and line; skip leaves the record out and counts it, until more than 1 % "
         "are bad; skip:0.05 allows 5 %. It applies to input by tf1ps.pipeline and by queue "
         "runners.", "The program", _WITH_PROGRAM, default=FAIL_ON_BAD_RECORD,
         placeholder="fail|skip[:R]", check=_problem_of_parsing(parse_bad_record_policy)),

  Option("num_ps", "The number of ps: tf1ps-local starts them, and of the tasks that a scheduler "
         "starts the first ones are ps. 1 by default, and none with all_reduce.",
         _COUNTS, ("local",) + _RESOLVING, int),
  Option("num_workers", "Workers to start; worker 0 is the chief.", _COUNTS, ("local",), int, 2),
  Option("evaluator", "Have an evaluator: tf1ps-local starts one, and of the tasks that a "
         "scheduler starts the last one is it. It needs --checkpoint_dir.",
         _COUNTS, ("local",) + _ON_CLUSTER + ("reset",), bool, False),
  Option("tensorboard", "Start TensorBoard on a free port of 127.0.0.1, too, print its address, "
         "and end it with the job. It needs --checkpoint_dir, and the extra tensorboard.",
         "The local cluster", ("local",), bool, False),
  Option("restart", "What happens when a task fails or is killed. never: the job ends. on_failure: "
         "the task is started again at its address, after a pause that grows.",
         "The local cluster", ("local",), default=RESTART_NEVER, values=RESTARTS),
  Option("max_restarts", "How often each task is started again, with --restart=on_failure; %d by "
         "default." % DEFAULT_MAX_RESTARTS, "The local cluster", ("local",), int, above=0),
  Option("log_dir", "The directory for the output of the tasks, one file each. Without it "
         "tf1ps-local makes one under the system's temporary directory, and removes it after a job "
         "that ends with 0; tf1ps-ssh writes no files.", "The local cluster", ("local", "ssh")),

  Option("ssh", "The ssh client with its options, such as 'ssh -p 2200 -i key'.", "The hosts",
         ("ssh",), default="ssh"),
  Option("chdir", "The folder on each host in which the command runs; by default the one in which "
         "tf1ps-ssh was started, under the same name.", "The hosts", ("ssh",)),

  Option("ps_hosts", "Addresses of the ps tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",) + _ASKING),
  Option("worker_hosts", "Addresses of the worker tasks: host:port,host:port.", _CLUSTER,
         _ON_CLUSTER + ("reset",)),
  Option("chief_hosts", "The address of the chief, host:port, if it is not worker 0.", _CLUSTER,
         _ON_CLUSTER + ("reset",)),
  Option("job_name", "This task's job; by default the one that the program runs.", _CLUSTER,
         _ON_CLUSTER),
  Option("task_index", "This task's index in its job. A job of one task needs none.",
         _CLUSTER, _ON_CLUSTER, int),
  Option("cluster_resolver", "Where the cluster and this task are described. flags: in the flags "
         "above; tf_config, volcano: in TF_CONFIG; slurm, jobset, indexed_job: in the variables of "
         "that scheduler. auto takes the first of these that is there, in the order flags, "
         "TF_CONFIG, JobSet, Indexed Job, Slurm; tf1ps-evaluator needs no cluster, and takes flags "
         "and TF_CONFIG.", _CLUSTER, _RESOLVING, default=AUTO_RESOLVER, values=RESOLVERS),
  Option("port", "The port of the tasks that a scheduler or tf1ps-ssh starts; those of Slurm and "
         "of tf1ps-ssh on one machine count up from it.", _CLUSTER, _RESOLVING + ("ssh",), int,
         DEFAULT_PORT, above=0),

  Option("container", "The container of the job's state on the ps. All tasks need the same. "
         "The default follows from --job_workers, so jobs that share a ps differ.",
         "The job", _OF_JOB),
  Option("job_workers", "The workers of this job, if several jobs share the ps, such as 2-3; all "
         "by default.", "The job", _OF_JOB, placeholder="N-N"),
  Option("persistent", "Serve any number of jobs, until SIGTERM or Ctrl-C.", "The job", ("ps",),
         bool, False),
  Option("tls_dir", "Encrypt and authenticate the links between the tasks: a directory with this "
         "task's cert.pem, its key.pem, and ca.pem, the certificate of the job's authority. "
         "tf1ps-certs makes them. All tasks need it; an evaluator, which has no links, ignores "
         "it.", "Links", _OF_JOB + ("reset",) + _ASKING, placeholder="DIR"),

  Option("replication", "between_graph: each worker runs a graph of its own on the variables of "
         "the ps. in_graph: the chief runs one graph on all workers. all_reduce: each worker keeps "
         "the variables, and there is no ps.", "Replication", _TRAINING, default=BETWEEN_GRAPH,
         values=REPLICATIONS, is_shared=lambda options: True),
  Option("num_clones", "The devices of a worker that divide its batch: its GPUs, or CPU devices if "
         "it has none.", "Replication", _TRAINING, int, 1, above=0,
         rules=(Rule(lambda options: options.replication == IN_GRAPH and not options.is_synchronous,
                     "with --replication=in_graph needs --sync_replicas: clones make one gradient "
                     "together, and asynchronous in-graph replicas update one by one"),)),

  Option("steps", "The global step at which the job ends, whenever it was started.", "Training",
         _TRAINING, int, above=0),
  Option("epochs", "How often the workers together go through the data, whenever the job was "
         "started.", "Training", _TRAINING,
         int, above=0),
  Option("examples", "The examples that the workers together train on, whenever the job was "
         "started.", "Training", _TRAINING, int, above=0),
  Option("optimizer", "The optimizer, if the program has none of its own.", "Training", _TRAINING,
         default="adam", values=OPTIMIZERS),
  Option("learning_rate", "The learning rate; by default the usual one of the optimizer.",
         "Training", _TRAINING, float, above=0),
  Option("learning_rate_decay", "How the learning rate changes with the global step: "
         "exponential:1000:0.9, cosine:5000, linear:5000, or piecewise:1000:0.1:5000:0.01; each "
         "may have warmup:500 before it and a comma.", "Training", _TRAINING,
         placeholder="SCHEDULE", check=_problem_of_parsing(parse_schedule), rules=(
           Rule(lambda options: options.optimizer == "ftrl" and 0.0 in options.schedule.factors,
                "ends with a learning rate of 0, by which --optimizer=ftrl divides: give a last "
                "factor, such as cosine:5000:0.01"),)),
  Option("scale_learning_rate", "Multiply the learning rate by the number of gradients in a "
         "synchronous update.", "Training", _TRAINING, bool, False, rules=(_NEEDS_SYNC,)),
  Option("clip_norm", "The highest global norm of an update's gradient; a longer one is "
         "clipped.", "Training", _TRAINING, float, above=0),
  Option("l2_regularization", "Add X / 2 times the sum of the squares of the weights to the "
         "loss: of trained variables of two dimensions or more whose gradients are dense.",
         "Training", _TRAINING, float, above=0),
  Option("moving_average_decay", "Keep moving averages of the trained variables, such as with "
         "0.999. Evaluation, prediction and export use them in place of the variables.",
         "Training", _TRAINING, float, check=_problem_of_decay,
         is_shared=lambda options: options.moving_average_decay is not None),
  Option("sync_replicas", "All workers make each update together, by the mean of their gradients. "
         "Without it each worker updates on its own; all_reduce is always synchronous.", "Training",
         _TRAINING, bool, False, is_shared=lambda options: True),
  Option("replicas_to_aggregate", "The gradients in a synchronous update; by default one of each "
         "worker. With fewer, an update does not wait for the slowest workers.", "Training",
         _TRAINING, int, above=0, rules=(_NEEDS_SYNC, _NEEDS_OWN_SYNC)),
  Option("on_uneven", "What happens when the data of one worker end and updates are synchronous. "
         "stop_all: training ends for all. pad: the worker takes part without a gradient. shrink: "
         "the others go on without it. repeat: its data begin again until all workers have come "
         "to the end of theirs.", "Training", _TRAINING, default=STOP_ALL, values=ON_UNEVEN, rules=(
           _NEEDS_SYNC, _NEEDS_OWN_SYNC,
           Rule(lambda options: options.on_uneven == REPEAT and options.shard == SHARD_DYNAMIC,
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
           Rule(lambda options: options.shard == SHARD_DYNAMIC
                and options.is_synchronous and options.on_uneven == STOP_ALL,
                "gives workers unequal shares, and with --sync_replicas the first end of data ends "
                "training: give --on_uneven=shrink or pad"))),
  Option("partition_bytes", "Divide each trainable variable of more bytes by its rows into "
         "shards of at most this size, on all ps; by default none is divided.", "Training",
         _TRAINING, int, above=0, rules=(_NEEDS_PS,),
         is_shared=lambda options: options.partition_bytes is not None),

  Option("checkpoint_dir", "The directory of the job's checkpoints. The chief restores from it and "
         "saves there; tf1ps-evaluator and tf1ps-predict read there. Without it nothing is "
         "kept.", "Checkpoints", _WITH_PROGRAM, check=directory_problem),
  Option("checkpoint", "The checkpoint to use instead of the latest in --checkpoint_dir: its path "
         "without the endings of its files, such as DIR/model.ckpt-100.", "Checkpoints",
         ("predict",), placeholder="PATH"),
  Option("once", "Evaluate the latest checkpoint and leave, instead of following the job.",
         "Checkpoints", ("evaluator",), bool, False),
  Option("keep_best", "Keep the best checkpoint in CHECKPOINT_DIR/best, by this metric of the "
         "evaluator: accuracy, or accuracy:max. Without :min or :max, a name with loss or error "
         "in it is minimised, others are maximised.", "Checkpoints", ("local", "evaluator"),
         parse_metric_goal, placeholder="METRIC[:min|max]"),
  Option("early_stopping", "End the job for all workers when this metric has not improved for N "
         "evaluations of the evaluator, such as accuracy:5 or accuracy:max:5.", "Checkpoints",
         ("local", "evaluator"), parse_early_stopping, placeholder="METRIC[:min|max]:N"),
  Option("save_checkpoints_secs", "Seconds between checkpoints.", "Checkpoints", _TRAINING, float,
         600.0, above=0),
  Option("save_checkpoints_steps", "Global steps between checkpoints, instead of seconds.",
         "Checkpoints", _TRAINING, int, above=0),
  Option("eval_steps", "Global steps between evaluations. The chief saves a checkpoint for each, "
         "instead of every --save_checkpoints_secs, and evaluates it beside its steps.",
         "Checkpoints", _TRAINING, int, above=0, rules=(
           Rule(lambda options: options.save_checkpoints_steps is not None,
                "cannot go with --save_checkpoints_steps: it saves a checkpoint for each "
                "evaluation"),)),
  Option("keep_checkpoint_max", "The number of checkpoints to keep.", "Checkpoints", _TRAINING,
         int, 5, above=0),
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
           Rule(lambda options: not options.checkpoint_dir,
                "needs --checkpoint_dir, the directory of the traces"),)),

  Option("pack_bytes", "Variables of fewer bytes travel together, in one message per ps, and so do "
         "their gradients. With 0 each travels alone.", "Transfer",
         _TRAINING, int, DEFAULT_PACK_BYTES, at_least=0, rules=(_NEEDS_PS,),
         is_shared=lambda options: options.sync_replicas),
  Option("wire_dtype", "The type in which float32 values and gradients travel. int8 is for "
         "gradients alone. Variables stay float32.", "Transfer", _TRAINING, default="float32",
         values=WIRE_DTYPES, rules=(_NEEDS_PS,),
         # The gradients of all workers are added up in one type.
         is_shared=lambda options: options.sync_replicas),
  Option("prefetch", "Compute each step of an asynchronous worker on values fetched during the "
         "step before. Gradients are one update older.", "Transfer", _TRAINING, bool, False, rules=(
           _NEEDS_ASYNC,
           Rule(lambda options: options.shard == SHARD_DYNAMIC,
                "cannot go with --shard=dynamic: its passes end in the middle of a step"))),
  Option("steps_per_execution", "The steps of an asynchronous worker in one run of its session, "
         "each on a batch of its own. They save trips to the ps. Hooks, stops and checkpoints act "
         "between runs.", "Transfer", _TRAINING, int, 1, above=0, rules=_SEVERAL_STEPS),
  Option("steps_in_flight", "The steps of an asynchronous worker that run at the same time. One "
         "travels while another computes on older values.", "Transfer", _TRAINING, int, 1, above=0,
         rules=_SEVERAL_STEPS + (
           Rule(lambda options: options.shard == SHARD_DYNAMIC,
                "cannot go with --shard=dynamic: it needs the order in which batches were trained "
                "on"),)),
  Option("gradient_accumulation_steps", "The batches of a worker whose gradients travel as one, "
         "their mean.", "Transfer", _TRAINING, int, 1, above=0, rules=(
           _NEEDS_OWN_GRAPH,
           Rule(lambda options: options.steps_in_flight > 1,
                "cannot go with --steps_in_flight: the gradients of one step at a time are added "
                "up"))),

  Option("start_timeout", "How long to wait for the other tasks at the start.",
         "Limits, in seconds", _OF_JOB + _ASKING, float, 60.0,
         {"ps": 600.0, "status": 10.0, "top": 10.0}, above=0),
  Option("end_timeout", "How long to wait for workers that make no step: the chief at its end, and "
         "others under max_lead.",
         "Limits, in seconds", _TRAINING, float, 300.0, above=0),
  Option("heartbeat_timeout", "How long a task may be silent before it counts as lost.",
         "Limits, in seconds", _OF_JOB, float, 30.0, above=0),
  Option("recovery_timeout", "How long a ps may stay away before the job ends; by default as long "
         "as --heartbeat_timeout. Give the time in which your scheduler starts a lost ps again.",
         "Limits, in seconds", _WITH_PS, float, above=0),
  Option("grace", "How long a task may take to end after SIGTERM. The chief saves meanwhile, and a "
         "ps waits for that. Give a few seconds less than your scheduler, which kills the task "
         "then.", "Limits, in seconds", _WITH_PS + ("ssh",), float, GRACE, above=0),

  Option("stall_after", "How long a worker may make no step until it prints the stacks of its "
         "threads and what it waits for; 0: for ever.",
         "Limits, in seconds", _TRAINING, float, 600.0, at_least=0),
  Option("on_stall", "What happens after --stall_after. report: the worker only prints. fail: "
         "after the same time once more it ends with an error, unless it waits for another worker.",
         "Limits, in seconds", _TRAINING, default=STALL_REPORT, values=ON_STALL, rules=(
           Rule(lambda options: not options.stall_after, "needs --stall_after above 0"),)),

  Option("inter_op_parallelism_threads", "The threads for operations that run at the same time.",
         "Threads and GPUs", _OF_JOB, int, above=0),
  Option("intra_op_parallelism_threads", "The threads that one operation may use.",
         "Threads and GPUs", _OF_JOB, int, above=0),
  Option("gpu_memory", "The memory that a task takes of each GPU: all of it, as much as it needs "
         "(grow), or a part between 0 and 1. With none the task sees no GPU. tf1ps-local gives "
         "its GPUs to the workers alone.", "Threads and GPUs", _OF_JOB,
         default=GPU_ALL, defaults={"ps": GPU_NONE, "evaluator": GPU_NONE},
         placeholder="none|grow|all|X", check=_problem_of_parsing(parse_gpu_memory)),

  Option("output", "The file to write: .csv, .jsonl or .npz.", "Output files", ("predict",)),
  Option("summary_image", "The PNG file into which the chief draws loss and throughput at the end "
         "of training. It needs the extra images.", "Output files", _TRAINING,
         placeholder="FILE.png", check=_problem_of_png),
  Option("export_dir", "The directory to write a SavedModel into.", "Output files", ("predict",)),

  Option("seconds", "The time that all measurements together may take.", "Tuning", ("tune",), float,
         240.0, above=0),

  Option("target", "A ps of tf1ps, grpc://host:port. It knows its cluster, so it takes the place "
         "of the addresses.", "Containers to clear", ("reset",)),
  Option("queues", "Shared names of queues in these containers that other programs made. They are "
         "closed first, because a ps of TensorFlow 2 dies if a queue on which a task is blocked "
         "is cleared.", "Containers to clear", ("reset",), parse_names, placeholder="NAME,NAME"),

  Option("metrics_port", "Serve /metrics for Prometheus, /healthz and /readyz on this port of "
         "127.0.0.1, or at HOST:PORT. tf1ps-local counts up from it: each task has its own. By "
         "default nothing is served.", "Output", _OF_JOB, parse_metrics_address,
         placeholder="[HOST:]PORT"),
  Option("json", "Print the result as one line of JSON.", "Output", ("status", "tune"), bool,
         False),
  Option("verbosity", "The least severe messages that TensorFlow logs. info shows those of its "
         "start, warning hides them.", "Output", PROGRAMS, parse_verbosity, "warning",
         placeholder="LEVEL"),
  Option("log_format", "The form of the output. json: one JSON object per line, with time, "
         "severity, task, message, and the figures of a progress.", "Output",
         _OF_JOB + ("predict", "reset", "ssh"),
         default=LOG_FORMATS[0], values=LOG_FORMATS),
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
  """The options of a program, in the order of --help."""
  as_well = {"tune": ("local",), "task": _ON_CLUSTER}.get(program, ())  # those that they run
  return [option for option in TABLE if {program, *as_well} & set(option.programs)]


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
  learning_rate_decay: Optional[str] = _default("learning_rate_decay")
  scale_learning_rate: bool = _default("scale_learning_rate")
  clip_norm: Optional[float] = _default("clip_norm")
  l2_regularization: Optional[float] = _default("l2_regularization")
  moving_average_decay: Optional[float] = _default("moving_average_decay")
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
  eval_steps: Optional[int] = _default("eval_steps")
  keep_checkpoint_max: int = _default("keep_checkpoint_max")
  save_summary_steps: int = _default("save_summary_steps")
  trace_steps: Optional[str] = _default("trace_steps")
  ps_recovery: str = _default("ps_recovery")
  start_timeout: float = _default("start_timeout")
  end_timeout: float = _default("end_timeout")
  stall_after: float = _default("stall_after")
  on_stall: str = _default("on_stall")
  summary_image: Optional[str] = _default("summary_image")
  config: object = None  # the tf.ConfigProto of the sessions; no flag

  @property
  def is_synchronous(self) -> bool:
    """Whether several workers make one update together."""
    return self.sync_replicas or self.replication == ALL_REDUCE

  @property
  def schedule(self) -> Optional[Schedule]:
    """The parsed `learning_rate_decay`."""
    return None if self.learning_rate_decay is None else parse_schedule(self.learning_rate_decay)

  @property
  def staleness(self) -> StalenessPolicy:
    """The parts of `staleness_policy`."""
    return parse_staleness_policy(self.staleness_policy)

  @property
  def overlaps(self) -> bool:
    """Whether the gradients of a single worker are stale, too."""
    return self.prefetch or self.steps_in_flight > 1


def check_options(options: Options) -> None:
  """Checks each value by itself, then the combinations.

  Raises:
    ValueError: an option is wrong; the message names the first one and what to give instead.
  """
  fields = [option for option in TABLE if option.name in Options._fields]
  for option in fields:
    value = getattr(options, option.name)
    problem = option.problem_of(value)
    if problem:
      raise ValueError("--%s %s, got %r" % (option.name, problem, value))
  if not (options.steps or options.epochs or options.examples):
    raise ValueError("the job has no end: give --steps, --epochs or --examples")
  for option in fields:
    value = getattr(options, option.name)
    for rule in option.rules:
      if value != option.default and rule.is_broken(options):
        raise ValueError("%s %s" % (as_flag(option.name, value), rule.text))


def shared_by_workers(options: Options) -> List[str]:
  """The options that all workers of a job must share, as flags: "--replication=in_graph"."""
  return [as_flag(option.name, getattr(options, option.name))
          for option in TABLE if option.is_shared is not None and option.is_shared(options)]


def as_flag(name: str, value) -> str:
  """An option as a flag: "--steps=5", "--prefetch" or "--noprefetch"."""
  if isinstance(value, bool):
    return "--%s%s" % ("" if value else "no", name)
  if isinstance(value, list):
    value = ",".join(map(str, value))
  return "--%s=%s" % (name, value)


def share_of(options: Options, count: int) -> Optional[float]:
  """The examples of all workers per example that the chief counts; None: not fixed.

  Args:
    options: of the job.
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
    options: of the job.
    index: of the worker, from 0.
    count: the number of workers.

  Raises:
    ValueError: --batch_size has another number of sizes than there are workers.
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
