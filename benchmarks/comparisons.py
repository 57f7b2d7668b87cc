"""The benchmarks that compare ways to train one model: the model, the link, and the systems.

The lines of tf1ps are only lists of its flags.
"""
from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

from benchmarks import interleaving, links, losses, rows
from benchmarks.systems import RUN, System
from tf1ps.cluster import visible_gpus

CLASSIC = System("classic", "classic", ("--variables=ref",))
PEERS = (
  CLASSIC,
  System("classic, resource variables", "classic", ("--variables=resource",)),
  System("one process, no cluster", "local", ("--variables=resource",)),
)
STRATEGY = (
  System("ParameterServerStrategy, a step per call", "parameter_server_strategy", ("--unroll=1",)),
  System("ParameterServerStrategy, 8 steps per call", "parameter_server_strategy", ("--unroll=8",)),
)


class Comparison(NamedTuple):
  """One table: systems that train one model over one link."""

  model: str
  lines: Sequence[System]
  gbit: float = 0  # the rate of the link; 0: loopback
  # The name of the line that other lines are compared with; None: the classic script.
  base: Optional[str] = None
  # The name of the line that losses are compared with; None: the line of `base`.
  loss_base: Optional[str] = None


def tf1ps(name: str, *options: str, **kwargs) -> System:
  """A line of tf1ps."""
  return System("tf1ps" + (", " + name if name else ""), "tf1ps", options, **kwargs)


def _lines(*own: System, peers=PEERS + STRATEGY) -> List[System]:
  return [*peers, *own]


OFF = tf1ps("nothing packed", env=("TF1PS_PACK_BYTES=0",))
DEFAULTS = tf1ps("")
BFLOAT16 = tf1ps("16 bits", "--wire_dtype=bfloat16")
PREFETCH = tf1ps("16 bits, prefetch", "--wire_dtype=bfloat16", "--overlap=prefetch")
IN_FLIGHT = tf1ps("16 bits, 2 in flight", "--wire_dtype=bfloat16", "--overlap=2")
# For tasks that share a small machine: not more threads than processors.
_ONE = ("--threads=1",)
FEW_THREADS = tf1ps("1 thread", *_ONE)

# The most that a run of several steps can gain: unrolled by hand, without tf1ps's safety measures.
UNROLLED = System("classic, 8 steps unrolled by hand", "classic",
                  ("--variables=resource", "--unroll=8"))

_S = _lines(
  System("classic, 1 thread", "classic", ("--variables=ref", "--threads=1")), UNROLLED, DEFAULTS,
  tf1ps("4 steps per run", "--steps_per_execution=4"),
  tf1ps("8 steps per run", "--steps_per_execution=8"),
  tf1ps("2 in flight", "--overlap=2"),
  tf1ps("8 steps per run, 2 in flight", "--steps_per_execution=8", "--overlap=2"),
  FEW_THREADS,
  tf1ps("8 steps per run, 1 thread", "--steps_per_execution=8", *_ONE),
  tf1ps("8 steps per run, 2 in flight, 1 thread", "--steps_per_execution=8", "--overlap=2",
        *_ONE))
_M = _lines(
  DEFAULTS, tf1ps("8 steps per run", "--steps_per_execution=8"), BFLOAT16,
  tf1ps("float16", "--wire_dtype=float16"),
  tf1ps("prefetch", "--overlap=prefetch"), PREFETCH, IN_FLIGHT,
  tf1ps("16 bits, 2 in flight, 1 thread", *IN_FLIGHT.options, *_ONE))
_L = _lines(
  OFF, DEFAULTS, tf1ps("4 batches per step", "--gradient_accumulation_steps=4",
                       minibatches_per_step=4),
  tf1ps("4 steps per run", "--steps_per_execution=4"),
  tf1ps("2 in flight", "--overlap=2"),
  tf1ps("4 steps per run, 2 in flight, 16 bits", "--steps_per_execution=4", "--overlap=2",
        "--wire_dtype=bfloat16"), FEW_THREADS,
  tf1ps("4 steps per run, 1 thread", "--steps_per_execution=4", *_ONE))
_V = [CLASSIC, PEERS[2], DEFAULTS, tf1ps("4 steps per run", "--steps_per_execution=4")]
# 20 variables of 4 KB to 1 MB each show the size from which copies cost more than messages.
_SIZES = [OFF, tf1ps("all packed", env=("TF1PS_PACK_BYTES=2000000",))]
# tf1ps leaves the allocator alone if the environment has a setting of it; this one changes nothing.
_RETURNED = tf1ps("memory returned", env=("GLIBC_TUNABLES=glibc.malloc.perturb=0",))
_LINK_SIZES = [OFF, tf1ps("packed below 64 KB", env=("TF1PS_PACK_BYTES=65536",)), DEFAULTS]
_E = _lines(DEFAULTS, tf1ps("bags", "--bench_look_up=bags"),
            tf1ps("each id once", "--bench_look_up=unique"))
_E_ADAM = [
  System("classic, Adam", "classic", ("--variables=ref", "--optimizer=adam")),
  tf1ps("Adam", "--optimizer=adam", "--learning_rate=0.001"),
  tf1ps("lazy Adam", "--optimizer=lazy_adam", "--learning_rate=0.001"),
  tf1ps("lazy Adam, bags", "--optimizer=lazy_adam", "--learning_rate=0.001",
        "--bench_look_up=bags")]
_TWO = dict(workers=2, minibatches_per_step=2)
# With free tokens, a worker may compute on values from before the update. So losses are compared
# with the loss of the optimizer without free tokens.
_AS_IT_IS, _STRICT = "SyncReplicasOptimizer", "SyncReplicasOptimizer, no free tokens"
_SYNC = [
  System(_AS_IT_IS, "sync_replicas", ("--variables=ref",), **_TWO),
  System(_STRICT, "sync_replicas", ("--variables=ref", "--tokens=0"), **_TWO),
  System("classic, 2 workers, asynchronous", "classic", ("--variables=ref",), workers=2),
  tf1ps("sync", "--sync_replicas", **_TWO),
  tf1ps("2 workers, asynchronous", workers=2),
]
_SLEEP = ("--bench_straggler=2", "--bench_sleep=0.1")
_STRAGGLER = [
  System(_AS_IT_IS, "sync_replicas", ("--straggler=2", "--sleep=0.1"), workers=3,
         minibatches_per_step=3),
  System(_STRICT, "sync_replicas", ("--straggler=2", "--sleep=0.1", "--tokens=0"), workers=3,
         minibatches_per_step=3),
  System("SyncReplicasOptimizer, one spare", "sync_replicas",
         ("--straggler=2", "--sleep=0.1", "--aggregate=2"), workers=3, minibatches_per_step=2),
  tf1ps("sync", "--sync_replicas", *_SLEEP, workers=3, minibatches_per_step=3),
  tf1ps("sync, one spare", "--sync_replicas=2", *_SLEEP, workers=3, minibatches_per_step=2),
  tf1ps("asynchronous", *_SLEEP, workers=3),
  tf1ps("asynchronous, max_lead=2", "--staleness_policy=max_lead:2", *_SLEEP, workers=3)]
_STOCK_HOOKS = [
  CLASSIC,
  System("classic, MonitoredTrainingSession", "classic",
         ("--variables=ref", "--session=monitored"))]
_HOOKS = [
  System("tf1ps's graph in a bare session", "bare"),
  DEFAULTS, tf1ps("checkpoints too", "--checkpoint_dir={folder}/checkpoints")]

# Programs without tf1ps code, on TensorFlow alone and run by tf1ps-run.
_STOCK = [
  System(name, "classic", ("--variables=ref", "--session=" + session))
  for name, session in (("MonitoredTrainingSession", "monitored"), ("Supervisor", "supervisor"),
                        ("plain session", "plain"))]
_STOCK_SYNC = _SYNC[0]._replace(options=("--variables=ref",))


# TensorFlow 2 itself has no estimators, so without tf1ps-run only TensorFlow 1.15 runs this line.
_ESTIMATOR = System("estimator", "estimator", ("--variables=ref",))


def _unchanged(*stock: System) -> List[System]:
  return [line for one in stock
          for line in (one, one._replace(name=one.name + ", tf1ps-run", runner=RUN))]


# Settings of gRPC and of TensorFlow's transport in the environment of a task.
_KNOBS = {
  "tcp_frame_size_tuning, tcp_rcv_lowat":
    ("GRPC_EXPERIMENTS=tcp_frame_size_tuning,tcp_rcv_lowat",),
  "large frames, no bdp_probe":
    ("TF_GRPC_DEFAULT_OPTIONS=grpc.http2.max_frame_size=16777215,grpc.http2.bdp_probe=0",),
  "tcp_read_chunk_size of 1 MB":
    ("TF_GRPC_DEFAULT_OPTIONS=grpc.experimental.tcp_read_chunk_size=1048576",),
  "no event engine":
    ("GRPC_EXPERIMENTS=-event_engine_client,-event_engine_listener,-event_engine_dns,"
     "-event_engine_callback_cq",),
  "CPU_ALLOCATOR_USE_BFC": ("TF_CPU_ALLOCATOR_USE_BFC=1",),
  "8 queues, 2 threads": ("TF_GRPC_WORKER_CACHE_QUEUES=8", "TF_GRPC_WORKER_CACHE_THREADS=2")}
_UNCHANGED = _STOCK[0]._replace(name="tf1ps-run", runner=RUN)
_CHANNELS = [
  _UNCHANGED._replace(
    name="tf1ps-run, 4 connections", options=(*_UNCHANGED.options, "--channels=4"),
    env=("TF_GRPC_DEFAULT_OPTIONS=grpc.use_local_subchannel_pool=1",)),
  _UNCHANGED._replace(name="tf1ps-run, once more")]  # shows the noise without any change
_GRPC = [_UNCHANGED, *(_UNCHANGED._replace(name="tf1ps-run, " + name, env=variables)
                       for name, variables in _KNOBS.items()), *_CHANNELS]

# One client schedules the steps of two workers.
_COORDINATORS = [line._replace(workers=2) for line in (
  *STRATEGY, System("tf1ps' ClusterCoordinator", "coordinator"),
  *(System("tf1ps' ClusterCoordinator, %s per run" % said, "coordinator",
           ("--steps_per_execution=%d" % steps,))
    for steps, said in ((1, "a step"), (8, "8 steps"), (24, "24 steps"))))]

# Encrypted links between the tasks, compared with plain links.
_LINKS = [DEFAULTS, tf1ps("TLS", "--tls_dir={tls}")]
_LINKS_LEAST = [tf1ps("1 thread", *_ONE), tf1ps("1 thread, TLS", *_ONE, "--tls_dir={tls}")]

# Workers on a GPU, with a ps that sees no GPU. Such networks are usually trained with momentum.
_MOMENTUM = ("--variables=ref", "--optimizer=momentum")
_ON_GPU = dict(has_gpu=True)
_GPU_STOCK = System("MonitoredTrainingSession", "classic",
                    (*_MOMENTUM, "--session=monitored"), **_ON_GPU)
_GPU = [
  System("one process, no cluster", "local", _MOMENTUM, **_ON_GPU), *_unchanged(_GPU_STOCK),
  *(tf1ps(name, "--optimizer=momentum", *options, **_ON_GPU) for name, *options in (
    ("",), ("prefetch", "--overlap=prefetch"), ("2 in flight", "--overlap=2"),
    ("16 bits", "--wire_dtype=bfloat16"),
    ("16 bits, 2 in flight", "--wire_dtype=bfloat16", "--overlap=2")))]
_GPU_TWO = [line._replace(workers=2) for line in (*_unchanged(_GPU_STOCK), _GPU[3])]


_SINGLE = tf1ps("a step per run", "--steps_per_execution=1")


def _levers(base: System) -> List[System]:
  """Lines with settings that may speed up the transfer of large variables, each setting alone."""
  return [
    base, *(base._replace(name="%s, %s" % (base.name, name), env=variables)
            for name, variables in _KNOBS.items()),
    base._replace(name=base.name + ", memory returned", env=_RETURNED.env),
    *(base._replace(name="%s, %d ps" % (base.name, count), ps=count) for count in (2, 4)),
    base._replace(name=base.name + ", parts of 1.5 MB",
                  options=(*base.options, "--partition_bytes=1500000")),
    base._replace(name=base.name + ", once more")]  # shows the noise without any change


def _pack_sizes(base: System) -> List[System]:
  """Lines that pack more variables than the default does, up to the size in the line's name."""
  return [base, *(base._replace(name="%s, packed below %d KB" % (base.name, size >> 10),
                                env=("TF1PS_PACK_BYTES=%d" % size,))
                  for size in (1 << 18, 1 << 19, 1 << 21, 1 << 24))]


COMPARISONS: Dict[str, Sequence[Comparison]] = {
  "latency_S": [Comparison("S", _S)],
  "bandwidth_M": [Comparison("M", _M)],
  "manyvars_L": [Comparison("L", _L)] + [Comparison(model, _V) for model in ("V10", "V50", "V200")],
  "sparse_E": [Comparison(model, lines, base=base) for model in ("E", "E_zipf")
               for lines, base in ((_E, None), (_E_ADAM, "classic, Adam"))],
  "sync_L": [Comparison(model, _SYNC, base=_AS_IT_IS, loss_base=_STRICT) for model in ("L", "H")],
  "sync_straggler_S": [Comparison("S", _STRAGGLER, base=_AS_IT_IS, loss_base=_STRICT)],
  "netns_M": [Comparison("M", _M, gbit) for gbit in (1, 10)],
  "netns_E": [Comparison("E", _E, gbit) for gbit in (1, 10)],
  "pack_bytes": [Comparison("V20x%d" % width, _SIZES, base=OFF.name)
                 for width in (32, 64, 96, 128, 192, 256, 512)],
  "netns_pack_bytes": [Comparison("V20x%d" % width, _LINK_SIZES, 1, base=OFF.name)
                       for width in (192, 256)],
  "freed_memory": [Comparison(model, [_RETURNED, DEFAULTS], base=_RETURNED.name)
                   for model in ("M", "V20x512")],
  "coordinator_S": [Comparison("S", _COORDINATORS, base=_COORDINATORS[0].name)],
  "tls": [Comparison(model, lines, base=lines[0].name) for model in ("S", "L", "M")
          for lines in (_LINKS, _LINKS_LEAST)],
  "legacy": [
    *(Comparison(model, _unchanged(*_STOCK, _ESTIMATOR), base=_STOCK[0].name)
      for model in "SLM"),
    Comparison("E", _unchanged(_STOCK[0], _ESTIMATOR), base=_STOCK[0].name),
    Comparison("E", _unchanged(_STOCK[0]._replace(
      name=_STOCK[0].name + ", Adam", options=(*_STOCK[0].options, "--optimizer=adam"))),
               base=_STOCK[0].name + ", Adam"),
    *(Comparison(model, [*_unchanged(_STOCK_SYNC), _SYNC[1]], base=_AS_IT_IS, loss_base=_STRICT)
      for model in "LH")],
  "grpc": [Comparison(model, _GRPC, gbit, base=_GRPC[0].name)
           for model, gbit in (("S", 0), ("L", 0), ("M", 0), ("E", 0), ("M", 1), ("E", 1))],
  # 6 million parameters in four variables, 23 MB each way. All systems are in memory at once.
  "large_V": [Comparison("V4x1200", lines, base=lines[0].name)
              for lines in (_levers(_SINGLE), [_UNCHANGED, *_CHANNELS])],
  "gpu_resnet50": [Comparison(model, lines, base=_GPU_STOCK.name) for model, lines in (
    ("resnet50", _GPU), ("resnet50", _GPU_TWO), ("resnet50_fed", _GPU[:4]))],
  "gpu_narrow": [Comparison("narrow", lines, base=_GPU_STOCK.name) for lines in (_GPU, _GPU_TWO)],
  "gpu_vgg16": [Comparison("vgg16", _GPU, base=_GPU_STOCK.name)],
  "gpu_large": [Comparison("resnet50", _levers(_GPU[3]), base=_GPU[3].name)],
  "gpu_pack_bytes": [Comparison(model, _pack_sizes(_GPU[3]), base=_GPU[3].name)
                     for model in ("narrow", "resnet50")],
  "hooks_S": [Comparison("S", _HOOKS, base=_HOOKS[0].name), Comparison("S", _STOCK_HOOKS)],
}

# Every kind of system and of link, on models that start fast, to show that they run.
QUICK: Dict[str, Sequence[Comparison]] = {
  "latency_S": [Comparison("S", [CLASSIC, PEERS[2], STRATEGY[1], DEFAULTS])],
  "manyvars_L": [Comparison("V10", [CLASSIC, OFF, DEFAULTS, BFLOAT16, tf1ps(
    "4 steps per run", "--steps_per_execution=4")])],
  "sparse_E": [Comparison("E_small", [CLASSIC, _E[-2], _E_ADAM[2]])],
  "sync_L": [Comparison("H", [_SYNC[0], _SYNC[-2]], base=_SYNC[0].name)],
  "netns_M": [Comparison("S", [CLASSIC, DEFAULTS], 1)],
  "tls": [Comparison("S", _LINKS, base=DEFAULTS.name)],
  "gpu_resnet50": [Comparison("resnet_tiny_fed", [
    line._replace(has_gpu=False) for line in _GPU[1:4:2]], base=_GPU_STOCK.name)],
}


def run(one: Comparison, pace: interleaving.Pace, minibatches: int, seeds: int,
        legacy_python: Optional[str] = None) -> List[dict]:
  """Runs one table.

  Args:
    one: the table's comparison.
    pace: how long each system is measured.
    minibatches: the number of minibatches after which losses are compared; 0: they are not.
    seeds: the number of seeds of the classic script.
    legacy_python: a Python 3.7 with TensorFlow 1.15 that also runs the classic script, or None.

  Returns:
    The table's rows. A row is marked as another algorithm if its loss says so. The row of a lost
    line has the reason; if the lost line is the line that others are compared with, no row has a
    ratio.

  Raises:
    links.LinkError: this machine cannot make such a link.
    interleaving.Skipped: there is no GPU.
  """
  lines = list(one.lines)
  if any(line.has_gpu for line in lines) and not visible_gpus():
    raise interleaving.Skipped("there is no GPU (nvidia-smi lists none, or CUDA_VISIBLE_DEVICES "
                               "hides them)")
  base = next(line for line in lines if line.name == (one.base or CLASSIC.name))
  if legacy_python and any(line.runner for line in lines):
    lines += [line._replace(name=line.name + ", TensorFlow 1.15", python=legacy_python)
              for line in lines]
  elif legacy_python and base is CLASSIC:
    lines.insert(1, CLASSIC._replace(name="classic, TensorFlow 1.15", python=legacy_python))
  lines = [line for line in lines if line.peer != "estimator" or line.runner
           or line.python == legacy_python]
  with links.link_of(one.gbit) as link:
    measured, lost = interleaving.compare(one.model, link, lines, pace)
  judge = one.loss_base or base.name
  found, spread = {}, 0.0
  if minibatches and measured:
    found, spread = _losses(one.model, [line for line in lines if line.name in measured],
                            next(line for line in lines if line.name == judge), minibatches, seeds)
  made = []
  for line in lines:
    if line.name in lost:
      made.append(lost_row(one.model, link, line, lost[line.name], line is base))
      continue
    loss = found.get(line.name)
    another = loss is not None and judge in found and losses.is_another_algorithm(
      loss, found[judge], spread)
    made.append(row(one.model, link, line, measured[line.name], measured.get(base.name), loss,
                    minibatches, another))
  return made


def _losses(model, lines, judge, minibatches, seeds):
  """Returns the losses of `lines` and of `judge`, by name, and the spread of `judge`'s losses."""
  interleaving.say("%s: losses after %d minibatches" % (model, minibatches))
  if judge not in lines:
    lines = [judge, *lines]  # even if the judge's row was lost, its loss may be measurable
  found = losses.compare(model, lines, minibatches)
  if judge.name not in found:
    return found, 0.0
  spread = losses.spread(model, judge, minibatches, found[judge.name], seeds)
  interleaving.say("%s: loss of %s %.8g, spread over %d seeds %.2g" % (
    model, judge.name, found[judge.name], seeds, spread))
  return found, spread


def lost_row(model: str, link: links.Link, line: System, reason: str, is_base: bool) -> dict:
  """Returns the row of a line that could not be measured.

  Args:
    model: the model's name.
    link: the link over which it ran.
    line: the system.
    reason: why it could not be measured.
    is_base: whether the other lines are compared with this line.
  """
  if is_base:
    reason += "; the others are compared with it, so there are no ratios"
  return rows.lost(model, link.name, line.name, " ".join(line.options), reason)


def row(model: str, link: links.Link, line: System, measured: interleaving.Measured,
        base: Optional[interleaving.Measured], loss: Optional[float] = None,
        minibatches: Optional[int] = None, another: bool = False) -> dict:
  """Returns the row of a line.

  Args:
    model: the model's name.
    link: the link over which it ran.
    line: the system.
    measured: the measurements of the line.
    base: the measurements of the line that it is compared with; None: that line was lost.
    loss: the loss after `minibatches` minibatches.
    minibatches: the number of minibatches; 0 or None: losses are not compared.
    another: whether its loss makes it another algorithm.
  """
  def median(values):
    return rows.summary(list(values), 6)["median"]

  windows = measured.windows
  rates = [window.steps_per_second for window in windows]
  ratio = None
  if base is not None:
    ratio = median(rates) / median(window.steps_per_second for window in base.windows)
  cpu = {job: median(window.cpu_ms_per_step[job] for window in windows)
         for job in ("worker", "ps")}
  return rows.row(
    model, link.name, line.name + rows.ANOTHER * another, " ".join(line.options), rates,
    ratio, cpu, measured.peak_mb, median(window.bytes_per_step for window in windows), loss,
    minibatches or None)
