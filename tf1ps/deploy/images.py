"""Renders the files of jobs that run in containers: Kubernetes' and Compose."""

from __future__ import annotations

import os
from typing import List, Sequence

from tf1ps.deploy.quoting import fill, undollar, yaml, yaml_list
from tf1ps.deploy.request import File, Request, flags_of_task, header, name_of, ranks_of
from tf1ps.launch import cluster_flags

_PROGRAM_FOLDER = "/program"  # in the image
_LABELS = {  # that the controller gives to each pod of a job
  "jobset": "jobset.sigs.k8s.io/jobset-name", "job": "batch.kubernetes.io/job-name",
  "tfjob": "training.kubeflow.org/job-name"}
# Pods start when the scheduler has a place for them and the image is there, also a new pod of a ps.
_POD_LIMITS = {"start_timeout": "600", "heartbeat_timeout": "30:300"}
_METRICS = "--metrics_port=0.0.0.0:9100"  # the kubelet calls the address of the pod


def render_jobset(request: Request) -> List[File]:
  """Returns the JobSet with a Job for each role, its network policy, and the image."""
  env = fill("jobset_env.yaml", **request._asdict())
  jobs = [
    fill("jobset_job.yaml", role=role, count=count,
         more_rules=fill("chief_rule.yaml") if role == "chief" else "",
         pod=_pod(request, "--cluster_resolver=jobset", env, role in ("chief", "worker")))
    for role, count in request.roles]
  awaited = ["chief"] + ["evaluator"] * request.evaluator
  text = fill("jobset.yaml", network_policy=_network_policy(request), name=request.name,
              awaited=yaml(awaited), jobs="".join(jobs))
  return [File("jobset.yaml", text), _dockerfile(request)]


def render_job(request: Request) -> List[File]:
  """Returns the Indexed Job with its service and its network policy, and the image."""
  num_tasks = len(request.tasks)
  awaited = [request.num_ps] + [num_tasks - 1] * request.evaluator
  resolver = ["--cluster_resolver=indexed_job"] + ["--evaluator"] * request.evaluator
  env = fill("job_env.yaml", num_tasks=num_tasks, **request._asdict())
  pod = _pod(request, resolver, env, has_gpus=True, subdomain='subdomain: "%s"' % request.name)
  text = fill("job.yaml", network_policy=_network_policy(request), name=request.name,
              label=_LABELS["job"], indexes=ranks_of(request), num_tasks=num_tasks,
              awaited=",".join(map(str, awaited)), pod=pod)
  return [File("job.yaml", text), _dockerfile(request)]


def render_tfjob(request: Request) -> List[File]:
  """Returns the TFJob and its network policy, and the image."""
  replicas = [
    # A chief by its exit code: from 128 on it is started again, and any other end fails the job.
    fill("tfjob_replica.yaml", role={"ps": "PS"}.get(role, role.capitalize()), count=count,
         restart="ExitCode" if role == "chief" else "OnFailure",
         pod=_pod(request, "--cluster_resolver=tf_config", "", role in ("chief", "worker"),
                  restart_policy="", container="tensorflow", port_name="tfjob-port", probe=""))
    for role, count in request.roles]
  text = fill("tfjob.yaml", network_policy=_network_policy(request), name=request.name,
              replicas="".join(replicas))
  return [File("tfjob.yaml", text), _dockerfile(request)]


def render_compose(request: Request) -> List[File]:
  """Returns the Compose file with a service for each task, and the image."""
  request = request._replace(image=request.image or request.name)
  command = ["tf1ps-task", "--cluster_resolver=flags", "--metrics_port=9100",
             *cluster_flags(request.tasks)]
  command += [undollar(flag) for flag in flags_of_task(request, _program(request))]
  services = []
  for task in request.tasks:
    name, limits = name_of(task), {}
    if request.cpus:
      limits["cpus"] = request.cpus
    if request.memory:
      limits["memory"] = "%dM" % request.memory_mib
    resources = {"limits": limits} if limits else {}
    if request.gpus and task.job == "worker":
      resources["reservations"] = {"devices": [
        {"driver": "nvidia", "count": request.gpus, "capabilities": ["gpu"]}]}
    services.append(fill(
      "compose_service.yaml", service=name,
      arguments=yaml(task.flags),
      restart=fill("compose_chief.yaml") if name == "worker-0" else "",
      deploy=yaml({"resources": resources} if resources else {})))
  mounts, volumes = [], {}
  if request.volume:
    is_folder = request.volume.startswith("/")
    mounts = [{"type": "bind" if is_folder else "volume", "source": undollar(request.volume),
               "target": undollar(request.checkpoint_dir)}]
    volumes = {} if is_folder else {request.volume: {}}
  text = fill(
    "compose.yaml", header=header(request), name=request.name, image=yaml(request.image),
    awaited="worker-0" + "; docker compose wait evaluator" * request.evaluator,
    kill_after=request.kill_after, mounts=yaml(mounts), command=yaml_list(command),
    services="".join(services), volumes=yaml(volumes))
  return [File("compose.yaml", text), _dockerfile(request)]


def _pod(request: Request, resolver, env: str, has_gpus: bool, restart_policy="Never",
         container="task", port_name="grpc", probe=None, subdomain="") -> str:
  resolver = [resolver] if isinstance(resolver, str) else resolver
  limits = ["--%s=%s" % each for each in _POD_LIMITS.items() if request.flag(each[0]) is None]
  command = ["tf1ps-task", *resolver, _METRICS] + [
    undollar(flag) for flag in flags_of_task(request, _program(request), limits)]
  requests, limits = {}, {}
  if request.cpus:
    requests["cpu"] = request.cpus
  if request.memory:
    requests["memory"] = limits["memory"] = request.memory
  if request.gpus and has_gpus:
    limits["nvidia.com/gpu"] = str(request.gpus)
  resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value}
  mounts, volumes = [], []
  if request.volume:
    mounts = [{"name": "checkpoints", "mountPath": request.checkpoint_dir}]
    volumes = [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": request.volume}}]
  return fill(
    "pod.yaml", restart_policy=restart_policy and "restartPolicy: " + restart_policy,
    kill_after=request.kill_after, subdomain=subdomain, container=container,
    image=yaml(request.image), command=yaml_list(command), env=env, port_name=port_name,
    probe=fill("probe.yaml") if probe is None else probe, resources=yaml(resources),
    mounts=yaml(mounts), volumes=yaml(volumes))


def _network_policy(request: Request) -> str:
  return fill("network_policy.yaml", header=header(request), name=request.name,
              label=_LABELS[request.target])


def _program(request: Request) -> str:
  if not request.is_file:
    return request.program
  return "%s/%s" % (_PROGRAM_FOLDER, os.path.basename(request.program))


def _dockerfile(request: Request) -> File:
  lines: Sequence[str] = ()
  if request.is_file:
    lines = ("# More files of the program, or its packages, go here, too.",
             "COPY %s" % yaml([os.path.basename(request.program), _PROGRAM_FOLDER + "/"]))
  folder = ""
  if request.volume:  # a new volume of Docker takes the owner of the folder in the image
    folder = "\nRUN %s" % yaml(["install", "-d", "-o", "10001", "-g", "10001",
                                request.checkpoint_dir])
  text = fill(
    "Dockerfile", header=header(request), copy_program="\n".join(lines), make_folder=folder,
    and_program=" and " + os.path.basename(request.program) if request.is_file else "",
    legacy=' "tf1ps[legacy]"' if request.needs_legacy else "",
    more_packages=' "tensorflow[and-cuda]"' if request.gpus else "")
  return File("Dockerfile", text)
