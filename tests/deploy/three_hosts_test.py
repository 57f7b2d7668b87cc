"""Jobs on three hosts, started by their files; a worker is killed, and comes back by its policy.

The hosts are network namespaces. The Slurm file runs as it is, with a srun of the test; what runs
in a pod comes from the JobSet's file.
"""
from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import sys

import pytest

from tests import harness, needs
from tests.deploy import cluster, host_tasks, hosts, stand_in_srun
from tests.survival import matrix_job
from tf1ps.cli import certs
from tf1ps.deploy import Request, render

# Several processes import TensorFlow one after the other, and names are looked up again late.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PROGRAM = "tests.deploy.gated_digits"
LIMIT = 150.0
STEPS = 1500
_JOB = str(os.getpid())  # of Slurm: another process of tests has another one


@pytest.fixture
def three(start, tmp_path):
  """The hosts of a test, or a skip where it may not have any."""
  try:
    return hosts.Hosts(start, tmp_path)
  except matrix_job.NotPermitted as error:
    return needs.skip("namespaces", error)


def flags_of_program(folder):
  """Training waits until a test opens its gate: the killed worker is back by then."""
  return ("--steps=%d" % STEPS, "--gate=%s" % (folder / "gate"))


def accuracy(text):
  """The accuracy at the end of a job, which it prints."""
  found = float(re.findall(r"test accuracy (\d\.\d+)", text)[-1])
  print("final test accuracy %g" % found)
  return found


def processes(**env):
  """The ids of the processes with these variables that are a task of tf1ps."""
  wanted = {"{}={}".format(*each).encode() for each in env.items()}
  for folder in pathlib.Path("/proc").glob("[0-9]*"):
    try:
      if (wanted <= set((folder / "environ").read_bytes().split(b"\0"))
          and hosts.TASK.encode() in (folder / "cmdline").read_bytes().split(b"\0")):
        yield int(folder.name)
    except OSError:
      continue  # it has ended


@pytest.mark.parametrize("has_links", [
  False, pytest.param(True, marks=pytest.mark.any_tensorflow)], ids=["plain", "tls"])
def test_slurm(three, start, tmp_path, has_links):
  flags = flags_of_program(tmp_path)
  if has_links:
    pytest.importorskip("cryptography", reason="pip install '.[tls]' brings it for tf1ps-certs")
    assert certs.run(["--dir=%s" % (tmp_path / "certs"), "--one", "node1", "node2", "node3"]) == 0
    flags += ("--tls_dir=%s" % (tmp_path / "certs" / "node1"),)
  request = Request("slurm", PROGRAM, num_ps=2, num_workers=3, checkpoint_dir="checkpoints",
                    flags=flags)
  file, = render(request)
  (tmp_path / file.name).write_text(file.text, encoding="utf-8")
  options = dict(re.findall("^#SBATCH --([a-z-]+)=(.*)", file.text, re.MULTILINE))
  three.add_program("srun", "#!/bin/sh\nexec %s %s \"$@\"\n" % (
    sys.executable, stand_in_srun.__file__))
  nodes = [(name, three.add(name, name)[0]) for name in ("node1", "node2", "node3")]
  job = start("sbatch", host_tasks.become, ["bash", file.name], str(tmp_path), {
    "PATH": three.programs + os.pathsep + os.environ["PATH"], "SLURM_JOB_ID": _JOB,
    "SLURM_NTASKS": options["ntasks"], "SLURM_DISTRIBUTION": options["distribution"],
    "STAND_IN_NODES": json.dumps(nodes)})
  try:
    job.wait_for("progress: step ", LIMIT)
    joined = re.compile(r"4: .* joined run ")
    harness.wait_until(lambda: joined.search(job.output), LIMIT, lambda: job.output)
    victim, = processes(SLURM_JOB_ID=_JOB, SLURM_PROCID="4")
    os.kill(victim, signal.SIGKILL)
    harness.wait_until(lambda: len(joined.findall(job.output)) == 2, LIMIT, lambda: job.output)
    (tmp_path / "gate").write_text("")
    assert job.wait(LIMIT) == 0, job.output
  finally:
    for process in processes(SLURM_JOB_ID=_JOB):
      os.kill(process, signal.SIGKILL)
  assert "4: rank 4 ended with 137: restart 1 of 5" in job.lines
  last = {rank: [line for line in job.lines if line.startswith("%d: " % rank)][-1]
          for rank in range(5)}
  assert all(line.endswith(", exit code 0") for line in last.values()), job.output
  assert re.search(r"4: worker 2: [1-9]\d* steps", last[4]), last[4]  # after its second start
  assert job.output.count("links over TLS") == (6 if has_links else 0)
  assert accuracy(job.output) > 0.9


@pytest.mark.parametrize("victim, sign", [("worker-0", "joined run "), ("ps-0", "serving at")],
                         ids=["worker", "ps"])
def test_jobset(three, start, tmp_path, victim, sign):
  """The new pod has the old name and a new address, which the other tasks have to look up."""
  yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests: pip install '.[test]'")
  request = Request("jobset", PROGRAM, image="digits", num_ps=1, num_workers=2,
                    checkpoint_dir=str(tmp_path / "checkpoints"), volume="checkpoints",
                    flags=flags_of_program(tmp_path))
  *_, document = yaml.safe_load_all(render(request)[0].text)
  controller = cluster.JobSetController(document, three, start, tmp_path)
  controller.start()
  pods = {pod.name: pod for pod in controller.pods}
  assert list(pods) == ["ps-0", "chief-0", "worker-0"]
  pods["chief-0"].task.wait_for("progress: step ", LIMIT)
  pods["worker-0"].task.wait_for("joined run ", LIMIT)
  pods[victim].task.kill()
  harness.wait_until(lambda: controller.step() or len(controller.pods) == 4, what="a new pod")
  again = controller.pods[-1].task
  again.wait_for(sign, LIMIT)
  if victim == "worker-0":  # after the loss of a ps no pod is ready until the job goes on
    harness.wait_until(lambda: all(pod.is_ready() for pod in controller.running()), LIMIT)
  (tmp_path / "gate").write_text("")
  harness.wait_until(controller.step, LIMIT, lambda: "\n".join(
    pod.task.output for pod in controller.pods))
  for pod in controller.pods:
    pod.task.wait()
  controller.step()
  assert controller.result == "Completed"
  codes = controller.codes()
  # The set has succeeded with its chief, and ends a ps that the chief has released just before.
  assert codes["ps-0"].pop() in (0, 128 + signal.SIGTERM)
  expected = {"ps-0": [], "chief-0": [0], "worker-0": [0]}
  expected[victim].insert(0, -signal.SIGKILL)
  assert codes == expected
  assert victim == "ps-0" or re.search(r"^worker 1: [1-9]\d* steps", again.last_line), again.output
  assert accuracy(pods["chief-0"].task.output) > 0.9


def test_a_jobset_fails_with_its_chief(three, start, tmp_path):
  yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests: pip install '.[test]'")
  request = Request("jobset", PROGRAM, image="digits", num_ps=1, num_workers=1,
                    checkpoint_dir="/proc/none", volume="none",
                    flags=flags_of_program(tmp_path))
  *_, document = yaml.safe_load_all(render(request)[0].text)
  controller = cluster.JobSetController(document, three, start, tmp_path)
  controller.start()
  ps, chief = controller.pods
  ps.task.wait_for("serving at", LIMIT)
  harness.wait_until(controller.step, LIMIT, lambda: chief.task.output)
  assert ps.task.wait() == 128 + signal.SIGTERM, ps.task.output
  controller.step()
  assert controller.result == "Failed"
  assert controller.codes() == {"ps-0": [128 + signal.SIGTERM], "chief-0": [1]}
  assert "/proc/none" in chief.task.output and chief.task.last_line.endswith(", exit code 1")
