"""The description of a job whose files are rendered, and the check of each of its values.

Every value is checked before a file is written. Some files have no quotes for a value, as a line
`#SBATCH` has none: there the check is what keeps the file whole.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import List, NamedTuple, Optional, Sequence, Tuple

from tf1ps.cluster import ClusterError, resolve_cluster
from tf1ps.compat import GRACE, Error

KUBERNETES = ("jobset", "job", "tfjob")
IN_IMAGES = KUBERNETES + ("compose",)
ON_HOSTS = ("slurm", "systemd")

_LEFT_TO_END = 5  # seconds between --grace and the scheduler's kill
_MEMORY_UNITS = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_LONGEST_LABEL = 63
# A file of a job writes these flags itself. The value: where to give it instead.
_OWN_FLAGS = {
  "program": "before --", "num_ps": "before --", "num_workers": "before --",
  "evaluator": "before --", "checkpoint_dir": "before --", "ps_hosts": "before --",
  "worker_hosts": "before --", "cluster_resolver": "", "job_name": "", "task_index": "",
  "chief_hosts": "", "port": "", "metrics_port": "",
}


class DeployError(Error, ValueError):
  """A value from which no valid file can be made, or a file that is there already."""


class File(NamedTuple):
  """A file of a job."""

  name: str
  text: str


class Request(NamedTuple):
  """A job, as the flags of `tf1ps-deploy render` describe it."""

  target: str  # one of TARGETS
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
  def num_tasks(self) -> int:
    """The number of tasks, the evaluator among them."""
    return self.num_ps + self.num_workers + self.evaluator

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

  def flag(self, name: str) -> Optional[str]:
    """The text of a flag after "--", the last one as absl takes it, or None."""
    found = [text.partition("=")[2] for text in self.flags
             if text.partition("=")[0].lstrip("-") == name]
    return found[-1] if found else None


def checked(request: Request) -> Request:
  """Returns the request with its defaults.

  Raises:
    DeployError: a value is wrong, or does not go with the target.
  """
  for field, value in request._asdict().items():
    for text in value if isinstance(value, tuple) else [value]:
      if isinstance(text, str) and not text.isprintable():
        raise DeployError("--%s has %r: a line break or control character cannot stand in the "
                          "files" % (field, text))
  request = request._replace(name=request.name or _name_of(request.program))
  request = _with_hosts(request) if request.target == "systemd" else _with_counts(request)
  if _has_all_reduce(request) and request.num_ps:
    raise DeployError("--replication=all_reduce has no ps, but there are %d: leave out --num_ps "
                      "and --ps_hosts" % request.num_ps)
  if not request.num_ps and not _has_all_reduce(request):
    raise DeployError("a job without ps needs --replication=all_reduce after --")
  _check_names(request)
  _check_resources(request)
  _check_checkpoints(request)
  _check_flags(request)
  return request


def _has_all_reduce(request: Request) -> bool:
  return request.flag("replication") == "all_reduce"


def _with_hosts(request: Request) -> Request:
  """Checks the addresses of systemd's tasks, and counts them."""
  if request.num_ps is not None or request.num_workers is not None:
    raise DeployError("--num_ps and --num_workers: with systemd leave them out, the hosts in "
                      "--ps_hosts and --worker_hosts are counted")
  if not request.worker_hosts:
    raise DeployError("--worker_hosts is missing: with systemd the tasks have addresses, such as "
                      "--worker_hosts=b:2222,c:2222")
  try:
    cluster = resolve_cluster(ps_hosts=request.ps_hosts, worker_hosts=request.worker_hosts,
                              job_name="worker", task_index=0)
  except ClusterError as error:
    raise DeployError(str(error)) from error
  return request._replace(num_ps=len(cluster.ps), num_workers=len(cluster.tasks("worker")))


def _with_counts(request: Request) -> Request:
  """Checks the numbers of tasks."""
  for flag in ("ps_hosts", "worker_hosts"):
    if getattr(request, flag):
      raise DeployError("--%s is for --to=systemd: the other schedulers choose the hosts" % flag)
  num_ps = int(not _has_all_reduce(request)) if request.num_ps is None else request.num_ps
  num_workers = 2 if request.num_workers is None else request.num_workers
  if num_ps < 0:
    raise DeployError("--num_ps=%d must be at least 0" % num_ps)
  if num_workers < 1:
    raise DeployError("--num_workers=%d must be at least 1: the chief is a worker" % num_workers)
  return request._replace(num_ps=num_ps, num_workers=num_workers)


def _name_of(program: str) -> str:
  """Returns the name of a job that runs this program: "digits" of tf1ps_examples.digits."""
  stem = os.path.basename(program)[:-3] if program.endswith(".py") else program.split(".")[-1]
  return re.sub("[^a-z0-9]+", "-", stem.lower()).strip("-") or stem


def _check_names(request: Request) -> None:
  name = request.name
  if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name):
    raise DeployError("--name=%s must be a DNS label: small letters, digits and -, a letter at the "
                      "start and no - at the end" % name)
  most = max(request.num_ps, request.num_workers, 1)
  longest = "%s-evaluator-0-%d-abcde" % (name, most)  # a pod of a JobSet
  if len(longest) > _LONGEST_LABEL:
    raise DeployError("--name=%s is too long: the name of a pod would have %d letters, and at most "
                      "%d are allowed" % (name, len(longest), _LONGEST_LABEL))
  if not request.is_file and not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", request.program):
    raise DeployError("--program=%s is neither a module nor the path of a .py file" %
                      request.program)
  if request.target == "systemd" and request.is_file and not os.path.isabs(request.program):
    raise DeployError("--program=%s must be an absolute path: systemd starts the tasks in no "
                      "folder of yours" % request.program)
  if request.target in IN_IMAGES:
    if request.is_file and not re.fullmatch(r"[\w .+-]+", os.path.basename(request.program)):
      raise DeployError("--program=%s: a Dockerfile cannot copy a file of this name; rename it" %
                        request.program)
    if request.image is None and request.target != "compose":
      raise DeployError("--image is missing: the image that the pods run, with the address of a "
                        "registry from which the cluster can pull")
    if request.image is not None and not re.fullmatch(
        r"[a-z0-9]([\w.-]*(:\d+)?/)?([a-z0-9._-]+/)*[a-z0-9._-]*(:[\w][\w.-]{0,127})?"
        r"(@sha256:[0-9a-f]{64})?", request.image, re.ASCII):
      raise DeployError("--image=%s is not the name of an image, such as registry.example/job:1" %
                        request.image)
  elif request.image is not None:
    raise DeployError("--image is for containers: --to=%s starts the tf1ps of the hosts" %
                      request.target)


def _check_resources(request: Request) -> None:
  if request.cpus is not None:
    if not re.fullmatch(r"\d{1,4}(\.\d{1,3})?", request.cpus, re.ASCII) or not float(request.cpus):
      raise DeployError("--cpus=%s must be a number above 0, such as 2 or 0.5" % request.cpus)
    if request.target == "slurm" and "." in request.cpus:
      raise DeployError("--cpus=%s must be a whole number for Slurm" % request.cpus)
  if request.memory is not None and not re.fullmatch(
      r"[1-9]\d{0,6}(Mi|Gi|Ti)", request.memory, re.ASCII):
    raise DeployError("--memory=%s must be a whole number with Mi, Gi or Ti, such as 4Gi" %
                      request.memory)
  if not 0 <= request.gpus < 1000:
    raise DeployError("--gpus=%d must be 0 or more" % request.gpus)
  if request.gpus and request.target == "systemd":
    raise DeployError("--gpus: systemd divides no GPUs; set CUDA_VISIBLE_DEVICES in a drop-in of "
                      "the unit where a host has several tasks")


def _check_checkpoints(request: Request) -> None:
  folder, volume = request.checkpoint_dir, request.volume
  if request.evaluator and not folder:
    raise DeployError("--evaluator needs --checkpoint_dir: it follows the checkpoints there")
  if volume is not None and request.target in ON_HOSTS:
    raise DeployError("--volume is for containers: with --to=%s, --checkpoint_dir is a folder that "
                      "all hosts share" % request.target)
  if request.checkpoint_folder is None:
    if volume is not None:
      raise DeployError("--volume needs --checkpoint_dir, the folder where the tasks see it%s" % (
        ": %s is a URL, which needs no volume" % folder if folder else ""))
    return
  if request.target in IN_IMAGES + ("systemd",) and (
      not os.path.isabs(folder) or os.path.normpath(folder) == "/"):
    raise DeployError("--checkpoint_dir=%s must be an absolute path other than /, or a URL" %
                      folder)
  if request.target in IN_IMAGES:
    if ":" in folder:
      raise DeployError("--checkpoint_dir=%s cannot be mounted: it has a colon" % folder)
    if volume is None:
      raise DeployError("--checkpoint_dir=%s is lost with the container: give --volume, %s" % (
        folder, "a PersistentVolumeClaim that several pods can mount (ReadWriteMany)"
        if request.target in KUBERNETES else "a volume of Docker or an absolute path"))
    label = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
    if request.target in KUBERNETES and (
        not re.fullmatch(label, volume) or len(volume) > 253):
      raise DeployError("--volume=%s is not the name of a PersistentVolumeClaim: small letters, "
                        "digits, - and ." % volume)
    if request.target == "compose" and not re.fullmatch(r"[A-Za-z0-9][\w.-]*|/[^:]*", volume,
                                                        re.ASCII):
      raise DeployError("--volume=%s is neither the name of a volume nor an absolute path" % volume)


def _check_flags(request: Request) -> None:
  grace = request.flag("grace")
  if grace is not None and not re.fullmatch(r"\d{1,6}(\.\d*)?", grace, re.ASCII):
    raise DeployError("--grace=%s after --: it must be a number of seconds" % grace)
  if request.flag("tls_dir") is not None and request.target in IN_IMAGES:
    raise DeployError("--tls_dir after --: these containers may not make the network namespace "
                      "that it needs. Leave it out: only the job's containers reach its ports")
  tls_dir = request.flag("tls_dir")
  if tls_dir is not None and request.target == "systemd" and not os.path.isabs(tls_dir):
    raise DeployError("--tls_dir=%s after -- must be an absolute path: systemd starts the tasks in "
                      "no folder of yours" % tls_dir)
  for text in request.flags:
    name = text.partition("=")[0].lstrip("-")
    if not re.fullmatch(r"--?[A-Za-z]\w*(=.*)?", text):
      raise DeployError("%r after -- is not a flag of the program: write --name=value" % text)
    own = name[2:] if name.startswith("no") and name[2:] in _OWN_FLAGS else name
    if own in _OWN_FLAGS:
      where = _OWN_FLAGS[own]
      raise DeployError("--%s after --: %s" % (
        own, "give it %s" % where if where else "the files have it already; leave it out"))


def names_of(request: Request) -> List[str]:
  """Returns the names of the tasks: ps-0, worker-0, worker-1, evaluator."""
  return (["ps-%d" % index for index in range(request.num_ps)]
          + ["worker-%d" % index for index in range(request.num_workers)]
          + ["evaluator"] * request.evaluator)


def ranks_of(request: Request) -> str:
  """Returns the task of each rank, in words: "0 to 1 are ps, 2 is the chief (worker 0)"."""
  parts, first = [], 0
  for count, one, many in (
      (request.num_ps, "a ps", "ps"), (1, "the chief (worker 0)", ""),
      (request.num_workers - 1, "a worker", "workers"), (request.evaluator, "the evaluator", "")):
    if count == 1:
      parts.append("%d is %s" % (first, one))
    elif count:
      parts.append("%d to %d are %s" % (first, first + count - 1, many))
    first += count
  return ", ".join(parts)


def flags_of_task(request: Request, program: Optional[str] = None,
                  more: Sequence[str] = ()) -> List[str]:
  """Returns the flags that all tasks have.

  Args:
    request: the job.
    program: the program as the tasks see it; by default as the request has it.
    more: flags that come before the user's.
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
