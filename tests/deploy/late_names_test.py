"""An Indexed Job whose pods come one after the other: DNS knows no name before its pod is there."""
from __future__ import annotations

import os
import re

import pytest

from tests import needs
from tests.deploy import host_tasks, hosts
from tests.survival import matrix_job
from tf1ps.deploy import Request, render

LIMIT = 150.0


@pytest.mark.slow
@pytest.mark.any_tensorflow
def test_an_indexed_job_whose_ps_has_no_name_yet(start, tmp_path):
  """Each pod is a host of its own, and gets its command and variables from the file."""
  yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests: pip install '.[test]'")
  request = Request(
    "job", "tests.deploy.gated_digits", num_ps=1, num_workers=2, evaluator=True, image="digits",
    checkpoint_dir=str(tmp_path / "checkpoints"), volume="checkpoints",
    flags=("--epochs=30", "--gate=" + str(tmp_path)))  # the gate is open
  *_, job = yaml.safe_load_all(render(request)[0].text)
  try:
    there = hosts.Hosts(start, tmp_path)
  except matrix_job.NotPermitted as error:
    needs.skip("namespaces", error)
  name, spec = job["metadata"]["name"], job["spec"]["template"]["spec"]
  container, = spec["containers"]

  def begin(index):
    host, _ = there.add("%s-%d" % (name, index), "%s-%d.%s" % (name, index, spec["subdomain"]))
    env = {each["name"]: each["value"] for each in container["env"]}
    program = os.path.join(there.programs, container["command"][0])
    argv = there.command(host, [program, *container["command"][1:]], str(tmp_path))
    return start("pod %d" % index, host_tasks.become, argv, str(tmp_path),
                 dict(env, JOB_COMPLETION_INDEX=str(index)))

  pods = [begin(index) for index in (1, 2)]
  for pod in pods:
    pod.wait_for("for the name %s-0.%s: /job:ps/task:0" % (name, name), LIMIT)
  pods = [begin(0), *pods, begin(3)]
  for pod in pods:
    assert pod.wait(LIMIT) == 0, pod.output
  for pod, task in zip(pods, ("ps 0: ", "worker 0 (chief): ", "worker 1: ", "evaluator: ")):
    assert pod.last_line.startswith(task), pod.output
  accuracy = float(re.search(r"test accuracy (\d\.\d+)", pods[3].last_line).group(1))
  assert accuracy > 0.9
