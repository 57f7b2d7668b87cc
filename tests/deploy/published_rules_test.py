"""The files against rules that others publish: schemas, and checkers of scripts and units.

The schemas: Kubernetes' own (kubernetes-validate), JobSet's from the interface that Kubeflow's
trainer publishes for it, Compose's (from check-jsonschema). A TFJob's pods are checked as pod
templates of Kubernetes, and the few fields around them by hand. ShellCheck reads the script,
hadolint the Dockerfile, systemd-analyze the units.
"""
from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import needs
from tests.deploy import rendered
from tf1ps.deploy import render

pytestmark = pytest.mark.any_tensorflow
yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests: pip install '.[test]'")

FILES = list(rendered.every_file())
MANIFESTS = [each for each in FILES if each[0] in ("jobset", "job", "tfjob")
             and each[2].name.endswith(".yaml")]
OLDEST, NEWEST = "1.31", "1.33"  # of Kubernetes: the first with a success policy, and a later one


def ids(files):
  return ["%s-%s" % (target, "everything" if everything else "plain")
          for target, everything, _ in files]


def program(name):
  """The path of a checker: of this Python's environment, or of the PATH; skips without it."""
  for folder in (os.path.dirname(sys.executable), None):
    found = shutil.which(name, path=folder)
    if found:
      return found
  return pytest.skip("%s is not installed: pip install '.[test]' brings it" % name)


def check(*argv):
  done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                        universal_newlines=True)
  assert done.returncode == 0, done.stdout


def kubernetes(document, version):
  validator = pytest.importorskip(
    "kubernetes_validate", reason="pip install '.[test]' brings kubernetes-validate")
  validator.validate(document, version, strict=True)


def with_pods_only(document):
  """The PodTemplates of a TFJob, which Kubernetes' schema knows; and checks what is around them."""
  assert document.pop("apiVersion") == "kubeflow.org/v1"
  assert set(document) == {"kind", "metadata", "spec"} and set(document["metadata"]) == {"name"}
  spec = document["spec"]
  assert set(spec) == {"successPolicy", "runPolicy", "tfReplicaSpecs"}
  assert spec["successPolicy"] in ("", "AllWorkers")
  assert spec["runPolicy"]["cleanPodPolicy"] in ("All", "Running", "None")
  assert set(spec["runPolicy"]) == {"cleanPodPolicy", "backoffLimit"}
  assert set(spec["tfReplicaSpecs"]) <= {"PS", "Chief", "Worker", "Evaluator"}
  for replica in spec["tfReplicaSpecs"].values():
    assert set(replica) == {"replicas", "restartPolicy", "template"}
    assert replica["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
    yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"},
           "template": replica["template"]}


def as_the_interface_has_it(document):
  """A JobSet as the published models read it: wrong types raise, and unknown fields vanish."""
  try:
    models = importlib.import_module("kubeflow_trainer_api.models")
  except ImportError:
    pytest.skip("pip install '.[test]' brings kubeflow-trainer-api, which has JobSet's interface")
  model = models.JobsetV1alpha2JobSet.from_dict(json.loads(json.dumps(document)))
  return json.loads(json.dumps(model.to_dict(), default=str))


def lost(given, read, path=""):
  """The paths of what was given and was not read; defaults may have been added."""
  if isinstance(given, dict) and isinstance(read, dict):
    return [each for key in given
            for each in (lost(given[key], read[key], path + "/" + key) if key in read
                         else [path + "/" + key])]
  if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
    return [each for number, (one, other) in enumerate(zip(given, read))
            for each in lost(one, other, "%s/%d" % (path, number))]
  return [] if given == read else [path]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("target, everything, file", MANIFESTS, ids=ids(MANIFESTS))
def test_manifests_fit_kubernetes_schemas(target, everything, file, version):
  kinds = []
  for document in yaml.safe_load_all(file.text):
    kinds.append(document["kind"])
    if document["kind"] == "TFJob":
      for pods in with_pods_only(document):
        kubernetes(pods, version)
    elif document["kind"] == "JobSet":
      for job in document["spec"]["replicatedJobs"]:
        kubernetes({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]},
                    "spec": job["template"]["spec"]}, version)
    else:
      kubernetes(document, version)
  assert kinds == {"jobset": ["NetworkPolicy", "JobSet"], "tfjob": ["NetworkPolicy", "TFJob"],
                   "job": ["NetworkPolicy", "Service", "Job"]}[target]


def test_kubernetes_schemas_notice_a_wrong_field():
  *_, job = yaml.safe_load_all(render(rendered.request("job"))[0].text)
  job["spec"]["backofLimit"] = 5
  with pytest.raises(Exception, match="backofLimit"):
    kubernetes(job, NEWEST)


JOBSETS = [each for each in MANIFESTS if each[0] == "jobset"]


@pytest.mark.parametrize("target, everything, file", JOBSETS, ids=ids(JOBSETS))
def test_jobsets_fit_their_published_interface(target, everything, file):
  _, document = yaml.safe_load_all(file.text)
  assert lost(document, as_the_interface_has_it(document)) == []


def test_the_interface_of_jobset_notices_a_wrong_field():
  _, document = yaml.safe_load_all(render(rendered.request("jobset"))[0].text)
  document["spec"]["successPolicy"]["target"] = ["chief"]
  assert lost(document, as_the_interface_has_it(document)) == ["/spec/successPolicy/target"]
  document["spec"]["failurePolicy"]["maxRestarts"] = "many"
  with pytest.raises(ValueError, match="maxRestarts"):
    as_the_interface_has_it(document)


COMPOSE = [each for each in FILES if each[2].name == "compose.yaml"]


def test_compose_files_fit_the_published_schema(tmp_path):
  pytest.importorskip("check_jsonschema", reason="pip install '.[test]' brings check-jsonschema")
  paths = [tmp_path / (name + ".yaml") for name in ids(COMPOSE)]
  for path, (_, _, file) in zip(paths, COMPOSE):
    path.write_text(file.text, encoding="utf-8")
  check(sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec",
        *map(str, paths))  # it names the file that does not fit


@pytest.fixture(scope="module")
def compose():
  """The command of Compose, and its version; it needs no Docker to read a file."""
  for command in (["docker", "compose"], ["docker-compose"]):
    if shutil.which(command[0]):
      done = subprocess.run(command + ["version", "--short"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, universal_newlines=True, timeout=60)
      if not done.returncode:
        return command, done.stdout.strip()
  needs.skip("Compose")


@pytest.mark.parametrize("target, everything, file", COMPOSE, ids=ids(COMPOSE))
def test_compose_itself_reads_the_files(compose, target, everything, file, tmp_path):
  command, version = compose
  text = file.text
  if version.startswith("1."):  # which does not know the name of the project yet
    text, count = re.subn("^name: .*\n", "", text, flags=re.MULTILINE)
    assert count == 1
  (tmp_path / "compose.yaml").write_text(text, encoding="utf-8")
  check(*command, "--file", str(tmp_path / "compose.yaml"), "config", "--quiet")


DOCKERFILES = [each for each in FILES if each[2].name == "Dockerfile"]


@pytest.mark.parametrize("target, everything, file", DOCKERFILES, ids=ids(DOCKERFILES))
def test_dockerfiles(target, everything, file, tmp_path):
  (tmp_path / "Dockerfile").write_text(file.text, encoding="utf-8")
  # DL3013 asks for versions; which ones is for the user to choose.
  check(program("hadolint"), "--ignore=DL3013", str(tmp_path / "Dockerfile"))


SCRIPTS = [each for each in FILES if each[0] == "slurm"]


@pytest.mark.parametrize("target, everything, file", SCRIPTS, ids=ids(SCRIPTS))
def test_scripts(target, everything, file, tmp_path):
  (tmp_path / file.name).write_text(file.text, encoding="utf-8")
  check("bash", "-n", str(tmp_path / file.name))
  # Of the user's values: that $ is not expanded within single quotes is what they are for.
  excluded = ["--exclude=SC2016,SC1003"] if everything else []
  check(program("shellcheck"), *excluded, str(tmp_path / file.name))
  directives = [line for line in file.text.splitlines() if line.startswith("#SBATCH")]
  first = next(position for position, line in enumerate(file.text.splitlines())
               if line and not line.startswith("#"))
  assert directives == [line for line in file.text.splitlines()[:first]
                        if line.startswith("#SBATCH")]  # sbatch stops to look at the first command


@pytest.mark.parametrize("everything", [False, True])
def test_units(everything, tmp_path):
  analyze = shutil.which("systemd-analyze")
  if not analyze:
    needs.skip("systemd-analyze")
  for file in render(rendered.request("systemd", everything, name="job")):
    # It looks for the program of a unit.
    text = file.text.replace("/opt/tf1ps/bin/tf1ps-task", shutil.which("true"))
    (tmp_path / file.name).write_text(text, encoding="utf-8")
  for file in sorted(tmp_path.iterdir()):
    unit = str(file).replace("@.", "@1.")
    if unit != str(file):
      shutil.copy(str(file), unit)
    done = subprocess.run([analyze, "verify", "--man=no", unit], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True)
    assert done.returncode == 0 and str(tmp_path) not in done.stdout, done.stdout
