"""Stands in for Kubernetes: runs a JobSet's pods on the test's hosts by the policies of its file.

Everything about a pod comes from the manifest: its command, its variables (the downward API's from
the labels that the controllers set), its name in DNS, and what follows from its exit code.
"""
from __future__ import annotations

import os
import signal
import subprocess
import sys

from tests.deploy import host_tasks

_GET = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)"
_COMPLETION_INDEX = "JOB_COMPLETION_INDEX"  # which the controller of Jobs sets


class Pod(object):
  """A pod that runs, or has ended."""

  def __init__(self, job, index, host, address, task):
    self.job, self.index, self.host, self.address, self.task = job, index, host, address, task

  @property
  def name(self):
    return "%s-%d" % (self.job["name"], self.index)

  def is_ready(self):
    """Whether the readiness probe succeeds, at the address of the pod."""
    container, = self.job["template"]["spec"]["template"]["spec"]["containers"]
    probe = container["readinessProbe"]["httpGet"]
    port, = [port["containerPort"] for port in container["ports"] if port["name"] == probe["port"]]
    url = "http://%s:%d%s" % (self.address, port, probe["path"])
    return not subprocess.call(["nsenter", "-t", str(self.host), "-n", sys.executable, "-c", _GET,
                                url], stderr=subprocess.DEVNULL)


class JobSetController(object):
  """Runs the pods of a JobSet until it has succeeded or failed.

  Attributes:
    pods: all pods that were started, in this order.
    result: "Completed" or "Failed" after `run`.
  """

  def __init__(self, document, hosts, start, folder, **env):
    self._set, self._hosts, self._start, self._folder = document, hosts, start, str(folder)
    self._env = env
    self._failures, self._done = {}, {}
    self.pods, self.result = [], None

  def start(self):
    """Starts a pod for each index of each Job."""
    for job in self._set["spec"]["replicatedJobs"]:
      assert job["replicas"] == 1 and job["template"]["spec"]["completionMode"] == "Indexed"
      for index in range(job["template"]["spec"]["completions"]):
        self._start_pod(job, index)

  def running(self):
    """The pods whose end was not seen yet."""
    return [pod for pod in self.pods if pod.task is not None and pod.task.is_running]

  def step(self):
    """Does what the policies say of pods that have ended; returns the result, if there is one."""
    for pod in [pod for pod in self.pods if pod not in self._done]:
      if not pod.task.is_running:
        self._done[pod] = pod.task.wait()
        self._pod_ended(pod, self._done[pod])
    policy = self._set["spec"]["successPolicy"]
    assert policy["operator"] == "All"
    if self.result is None and all(self._is_complete(name)
                                   for name in policy["targetReplicatedJobs"]):
      self.result = "Completed"
    if self.result:
      for pod in self.running():
        pod.task.signal(signal.SIGTERM)
    return self.result

  def codes(self):
    """{name of the pod: exit codes of its starts}."""
    found = {}
    for pod in self.pods:
      found.setdefault(pod.name, []).append(self._done.get(pod))
    return found

  def _is_complete(self, name):
    job, = [job for job in self._set["spec"]["replicatedJobs"] if job["name"] == name]
    return {pod.index for pod, code in self._done.items()
            if pod.job is job and code == 0} == set(range(job["template"]["spec"]["completions"]))

  def _pod_ended(self, pod, code):
    """Does what a Job does when a pod has ended."""
    if code == 0 or self.result:
      return
    spec = pod.job["template"]["spec"]
    code = code if code > 0 else 128 - code
    for rule in spec["podFailurePolicy"]["rules"]:
      if "onExitCodes" in rule and code in rule["onExitCodes"]["values"]:
        assert rule["action"] == "FailJob" and rule["onExitCodes"]["operator"] == "In"
        self._job_failed(pod.job)
        return
    self._failures[pod.name] = self._failures.get(pod.name, 0) + 1
    if self._failures[pod.name] > spec["backoffLimitPerIndex"]:
      assert spec["maxFailedIndexes"] == 0
      self._job_failed(pod.job)
    else:
      self._start_pod(pod.job, pod.index)

  def _job_failed(self, job):
    policy = self._set["spec"]["failurePolicy"]
    assert policy["maxRestarts"] == 0 and policy["rules"][0]["action"] == "FailJobSet"
    self.result = "Failed"

  def _start_pod(self, job, index):
    """Starts a pod: a host that is new, with a new address, under the name of its index."""
    set_name, network = self._set["metadata"]["name"], self._set["spec"]["network"]
    assert network["enableDNSHostnames"] and network["publishNotReadyAddresses"]
    hostname = "%s-%s-0-%d" % (set_name, job["name"], index)
    host, address = self._hosts.add(hostname, "%s.%s" % (hostname, network["subdomain"]))
    labels = {"jobset-name": set_name, "replicatedjob-name": job["name"], "job-index": "0"}
    container, = job["template"]["spec"]["template"]["spec"]["containers"]
    env = dict(self._env, **{_COMPLETION_INDEX: str(index)})
    for each in container["env"]:
      if "valueFrom" in each:
        path = each["valueFrom"]["fieldRef"]["fieldPath"]
        label = path[len("metadata.labels['jobset.sigs.k8s.io/"):-len("']")]
        env[each["name"]] = labels[label]
      else:
        env[each["name"]] = each["value"]
    command = [word.replace("$$", "$") for word in container["command"]]
    command[0] = os.path.join(self._hosts.programs, command[0])
    argv = self._hosts.command(host, command, self._folder)
    task = self._start("%s-%d" % (job["name"], index), host_tasks.become, argv, self._folder, env)
    self.pods.append(Pod(job, index, host, address, task))
