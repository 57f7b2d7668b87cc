"""The description of a job whose files are rendered, and the check of each of its values.

Every value is checked before a file is written. Some files have no quotes for a value, as a line
`#SBATCH` has none: there the check is what keeps the file whole.
"""

from __future__ import annotations

import os
import re
import shlex
import tokenize
from typing import List, NamedTuple, Optional, Sequence, Tuple

from tf1ps.cluster import ClusterError, resolve_cluster, split_hosts
from tf1ps.compat import GRACE, Error
from tf1ps.doctor import SourceFile, UnreadableError, read_program
from tf1ps.launch import Task, describe_tasks

KUBERNETES = ("jobset", "job", "tfjob")
IN_IMAGES = KUBERNETES + ("compose",)
ON_HOSTS = ("slurm", "systemd")

_LEFT_TO_END = 5  # seconds between --grace and the scheduler's kill
_MEMORY_UNITS = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_LONGEST_LABEL = 63
# What a program uses of the extra `legacy`: names of TensorFlow that it brings back, its packages.
_OF_LEGACY = re.compile(r"(tf|tensorflow)\.(contrib|estimator|keras|layers|nn\.rnn_cell)(\.|$)"
                        r"|(tf_keras|tf_slim|tensorflow_estimator)\b")
# Flags that tf1ps-deploy writes into a job's file, each with the place of its value instead.
_OWN_FLAGS = {
  "program": "before --", "num_ps": "before --", "num_workers": "before --",
  "evaluator": "before --", "checkpoint_dir": "before --", "ps_hosts": "before --",
  "worker_hosts": "before --", "cluster_resolver": "", "job_name": "", "task_index": "",
  "port": "", "metrics_port": "",
}


class DeployError(Error, ValueError):
  """A value from which no valid file can be made, or a file that is there already."""


class File(NamedTuple):
  """A file of a job."""

  name: str
  text: str


class Request(NamedTuple):
  """A job, as the flags of `tf1ps-deploy render` describe it."""

  target: str  # a name in TARGETS
  program: str  # a module, or the path of a .py file
  name: str = ""  # of the job; by default the program's
  num_ps: Optional[int] = None  # 1, or 0 with all-reduce; for systemd the number of `ps_hosts`
  num_workers: Optional[int] = None  # with the chief: 2, or the number of `worker_hosts`
  evaluator: bool = False
  checkpoint_dir: Optional[str] = None  # where the tasks see it
  volume: Optional[str] = None  # what is mounted there
  image: Optional[str] = None
  cpus: Optional[str] = None  # of each task
  memory: Optional[str] = None  # of each task, such as "4Gi"
  gpus: int = 0  # of each worker
  ps_hosts: str = ""  # systemd's tasks have addresses
  worker_hosts: str = ""
  flags: Tuple[str, ...] = ()  # for the program: those after "--"

  @property
  def kill_after(self) -> int:
    """Seconds after SIGTERM at which the scheduler kills a task: a few more than --grace."""
    return int(float(self.flag("grace") or GRACE) + 0.999) + _LEFT_TO_END

  @property
  def tasks(self) -> List[Task]:
    """The tasks; for Compose with the addresses of its services, for systemd with those given."""
    hosts = split_hosts(self.ps_hosts) + split_hosts(self.worker_hosts)
    if self.target == "compose":
      hosts = [name_of(task) + ":2222" for task in describe_tasks(self.num_ps, self.num_workers)]
    return describe_tasks(self.num_ps, self.num_workers, self.evaluator, hosts)

  @property
  def roles(self) -> List[Tuple[str, int]]:
    """The roles that the job has, and the number of tasks of each, in the order of the ranks."""
    counts = [("ps", self.num_ps), ("chief", 1), ("worker", self.num_workers - 1),
              ("evaluator", int(self.evaluator))]
    return [(role, count) for role, count in counts if count]

  @property
  def memory_mib(self) -> Optional[int]:
    """The memory of each task, in MiB."""
    return self.memory and int(self.memory[:-2]) * _MEMORY_UNITS[self.memory[-2:]]

  @property
  def checkpoint_folder(self) -> Optional[str]:
    """The folder of the checkpoints; None if there is none, or a URL names their place."""
    folder = self.checkpoint_dir
    return None if not folder or re.match(r"[a-z][a-z0-9+.-]*://", folder) else folder

  @property
  def is_file(self) -> bool:
    """Whether the program is a file; else it is a module."""
    return self.program.endswith(".py")

  @property
  def needs_legacy(self) -> bool:
    """Whether the program, if it is a file here, uses what the extra `legacy` installs."""
    source = _read(self)
    return source is not None and any(
      _OF_LEGACY.match(name) for _, name in [*source.names(), *source.imports()])

  def flag(self, name: str) -> Optional[str]:
    """The last value of a flag after "--", as absl takes it, or None."""
    values = [text.partition("=")[2] for text in self.flags
              if text.partition("=")[0].lstrip("-") == name]
    return values[-1] if values else None


def checked(request: Request) -> Request:
  """Returns the request with its defaults.

  Raises:
    DeployError: a value is wrong, or does not go with the target.
  """
  for field, value in request._asdict().items():
    for text in value if isinstance(value, tuple) else [value]:
      _refuse(isinstance(text, str) and not text.isprintable(), "--%s has %r: a line break or "
              "control character cannot stand in the files" % (field, text))
  request = request._replace(name=request.name or _name_of(request.program))
  request = _with_hosts(request) if request.target == "systemd" else _with_counts(request)
  _refuse(_has_all_reduce(request) and request.num_ps, "--replication=all_reduce has no ps, but "
          "there are %d: leave out --num_ps and --ps_hosts" % request.num_ps)
  _refuse(not request.num_ps and not _has_all_reduce(request),
          "a job without ps needs --replication=all_reduce after --")
  _check_names(request)
  _read(request)
  _check_resources(request)
  _check_checkpoints(request)
  _check_flags(request)
  return request


def _has_all_reduce(request: Request) -> bool:
  return request.flag("replication") == "all_reduce"


def _with_hosts(request: Request) -> Request:
  """Checks the addresses of systemd's tasks, and counts them."""
  _refuse(request.num_ps is not None or request.num_workers is not None, "--num_ps and "
          "--num_workers: with systemd leave them out, the hosts in --ps_hosts and --worker_hosts "
          "are counted")
  _refuse(not request.worker_hosts, "--worker_hosts is missing: with systemd the tasks have "
          "addresses, such as --worker_hosts=b:2222,c:2222")
  try:
    cluster = resolve_cluster(ps_hosts=request.ps_hosts, worker_hosts=request.worker_hosts,
                              job_name="worker", task_index=0)
  except ClusterError as error:
    raise DeployError(str(error)) from error
  return request._replace(num_ps=len(cluster.ps), num_workers=len(cluster.tasks("worker")))


def _with_counts(request: Request) -> Request:
  for flag in ("ps_hosts", "worker_hosts"):
    _refuse(getattr(request, flag),
            "--%s is for --to=systemd: the other schedulers choose the hosts" % flag)
  num_ps = int(not _has_all_reduce(request)) if request.num_ps is None else request.num_ps
  num_workers = 2 if request.num_workers is None else request.num_workers
  _refuse(num_ps < 0, "--num_ps=%d must be at least 0" % num_ps)
  _refuse(num_workers < 1,
          "--num_workers=%d must be at least 1: the chief is a worker" % num_workers)
  return request._replace(num_ps=num_ps, num_workers=num_workers)


def _name_of(program: str) -> str:
  """Returns the name of a job that runs this program: "digits" of tf1ps_examples.digits."""
  stem = os.path.basename(program)[:-3] if program.endswith(".py") else program.split(".")[-1]
  return re.sub("[^a-z0-9]+", "-", stem.lower()).strip("-") or stem


def _refuse(is_wrong: object, text: str) -> None:
  if is_wrong:
    raise DeployError(text)


def _check_names(request: Request) -> None:
  name, program, image = request.name, request.program, request.image
  _refuse(not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name),
          "--name=%s must be a DNS label: small letters, digits and -, a letter at the start and "
          "no - at the end" % name)
  most = max(request.num_ps, request.num_workers, 1)
  longest = len("%s-evaluator-0-%d-abcde" % (name, most))  # a pod of a JobSet
  _refuse(longest > _LONGEST_LABEL, "--name=%s is too long: the name of a pod would have %d "
          "letters, and at most %d are allowed" % (name, longest, _LONGEST_LABEL))
  _refuse(not request.is_file and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", program),
          "--program=%s is neither a module nor the path of a .py file" % program)
  _refuse(request.target == "systemd" and request.is_file and not os.path.isabs(program),
          "--program=%s must be an absolute path: systemd starts the tasks in no folder of yours" %
          program)
  if request.target not in IN_IMAGES:
    _refuse(image is not None, "--image is for containers: --to=%s starts the tf1ps of the hosts" %
            request.target)
    return
  _refuse(request.is_file and not re.fullmatch(r"[\w .+-]+", os.path.basename(program)),
          "--program=%s: a Dockerfile cannot copy a file of this name; rename it" % program)
  _refuse(image is None and request.target != "compose", "--image is missing: the image that the "
          "pods run, with the address of a registry from which the cluster can pull")
  _refuse(image is not None and not re.fullmatch(
    r"[a-z0-9]([\w.-]*(:\d+)?/)?([a-z0-9._-]+/)*[a-z0-9._-]*(:[\w][\w.-]{0,127})?"
    r"(@sha256:[0-9a-f]{64})?", image, re.ASCII),
    "--image=%s is not the name of an image, such as registry.example/job:1" % image)


def _read(request: Request) -> Optional[SourceFile]:
  """Returns the parsed program; None for a module, and for a file of another machine."""
  if not request.is_file or not os.path.isfile(request.program):
    return None
  try:
    with tokenize.open(request.program) as file:  # by its declared encoding
      return read_program(request.program, file.read())
  except UnreadableError as error:
    raise DeployError("--program=%s" % error) from error
  except (OSError, UnicodeDecodeError, SyntaxError) as error:
    raise DeployError("--program=%s cannot be read: %s" % (request.program, error)) from error


def _check_resources(request: Request) -> None:
  cpus, memory, gpus = request.cpus, request.memory, request.gpus
  _refuse(cpus is not None and not (
    re.fullmatch(r"\d{1,4}(\.\d{1,3})?", cpus, re.ASCII) and float(cpus)),
    "--cpus=%s must be a number above 0, such as 2 or 0.5" % cpus)
  _refuse(request.target == "slurm" and "." in (cpus or ""),
          "--cpus=%s must be a whole number for Slurm" % cpus)
  _refuse(memory is not None and not re.fullmatch(r"[1-9]\d{0,6}(Mi|Gi|Ti)", memory, re.ASCII),
          "--memory=%s must be a whole number with Mi, Gi or Ti, such as 4Gi" % memory)
  _refuse(not 0 <= gpus < 1000, "--gpus=%d must be 0 or more" % gpus)
  _refuse(gpus and request.target == "systemd", "--gpus: systemd divides no GPUs; set "
          "CUDA_VISIBLE_DEVICES in a drop-in of the unit where a host has several tasks")


def _check_checkpoints(request: Request) -> None:
  folder, volume = request.checkpoint_dir, request.volume
  _refuse(request.evaluator and not folder,
          "--evaluator needs --checkpoint_dir: it follows the checkpoints there")
  _refuse(volume is not None and request.target in ON_HOSTS, "--volume is for containers: with "
          "--to=%s, --checkpoint_dir is a folder that all hosts share" % request.target)
  if request.checkpoint_folder is None:
    _refuse(volume is not None, "--volume needs --checkpoint_dir, the folder where the tasks see "
            "it" + (": %s is a URL, which needs no volume" % folder if folder else ""))
    return
  _refuse(request.target != "slurm" and (
    not os.path.isabs(folder) or os.path.normpath(folder) == "/"),
    "--checkpoint_dir=%s must be an absolute path other than /, or a URL" % folder)
  if request.target in IN_IMAGES:
    _refuse(":" in folder, "--checkpoint_dir=%s cannot be mounted: it has a colon" % folder)
    _refuse(volume is None, "--checkpoint_dir=%s is lost with the container: give --volume, %s" % (
      folder, "a PersistentVolumeClaim that several pods can mount (ReadWriteMany)"
      if request.target in KUBERNETES else "a volume of Docker or an absolute path"))
    _refuse(request.target in KUBERNETES and not re.fullmatch(
      r"(?=.{1,253}$)[a-z0-9]([-a-z0-9.]*[a-z0-9])?", volume),
      "--volume=%s is not the name of a PersistentVolumeClaim: small letters, digits, - and ." %
      volume)
    _refuse(request.target == "compose" and not re.fullmatch(
      r"[A-Za-z0-9][\w.-]*|/[^:]*", volume, re.ASCII),
      "--volume=%s is neither the name of a volume nor an absolute path" % volume)


def _check_flags(request: Request) -> None:
  grace, tls_dir = request.flag("grace"), request.flag("tls_dir")
  _refuse(grace is not None and not re.fullmatch(r"\d{1,6}(\.\d*)?", grace, re.ASCII),
          "--grace=%s after --: it must be a number of seconds" % grace)
  if tls_dir is not None:
    _refuse(request.target in IN_IMAGES, "--tls_dir after --: these containers may not make the "
            "network namespace that it needs. Leave it out: only the job's containers reach its "
            "ports")
    _refuse(request.target == "systemd" and not os.path.isabs(tls_dir), "--tls_dir=%s after -- "
            "must be an absolute path: systemd starts the tasks in no folder of yours" % tls_dir)
  for text in request.flags:
    name = text.partition("=")[0].lstrip("-")
    _refuse(not re.fullmatch(r"--?[A-Za-z]\w*(=.*)?", text),
            "%r after -- is not a flag of the program: write --name=value" % text)
    own = name[2:] if name.startswith("no") and name[2:] in _OWN_FLAGS else name
    where = _OWN_FLAGS.get(own)
    _refuse(own in _OWN_FLAGS, "--%s after --: %s" % (
      own, "give it %s" % where if where else "the files have it already; leave it out"))


def name_of(task: Task) -> str:
  """Returns the name of a task among the services of Compose: ps-0, evaluator."""
  return task.job if task.job == "evaluator" else "%s-%d" % (task.job, task.index)


def ranks_of(request: Request) -> str:
  """Returns the task of each rank, in words: "0 to 1 are ps, 2 is the chief (worker 0)"."""
  names = {"ps": "a ps", "chief": "the chief (worker 0)", "worker": "a worker",
           "evaluator": "the evaluator"}
  parts, first = [], 0
  for role, count in request.roles:
    parts.append("%d is %s" % (first, names[role]) if count == 1 else "%d to %d are %s" % (
      first, first + count - 1, {"worker": "workers"}.get(role, role)))
    first += count
  return ", ".join(parts)


def flags_of_task(request: Request, program: Optional[str] = None,
                  more: Sequence[str] = ()) -> List[str]:
  """Returns the flags that all tasks have.

  `program` is the program as the tasks see it; `more` are flags that come before the user's.
  """
  flags = ["--program=" + (program or request.program)]
  if request.checkpoint_dir:
    flags.append("--checkpoint_dir=" + request.checkpoint_dir)
  return flags + list(more) + list(request.flags)


def header(request: Request) -> str:
  """Returns the command that made a file, for its first line."""
  values = request._asdict()
  names = ["program", "name", "num_ps", "num_workers", "ps_hosts", "worker_hosts", "evaluator",
           "checkpoint_dir", "volume", "image", "cpus", "memory", "gpus"]
  if request.target == "systemd":
    names = [name for name in names if not name.startswith("num_")]
  words = ["tf1ps-deploy", "render", "--to=" + request.target]
  for name in names:
    if values[name] is True:
      words.append("--" + name)
    elif values[name] or values[name] == 0 and name == "num_ps":
      words.append("--%s=%s" % (name, values[name]))
  words += ["--", *request.flags] if request.flags else []
  return "Made by: " + " ".join(map(shlex.quote, words))
