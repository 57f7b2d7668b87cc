"""The values of files as those read them that start the tasks; bad values are refused."""
from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import pytest

from tests.deploy import rendered
from tf1ps.cli import deploy as program
from tf1ps.deploy import TARGETS, DeployError, File, Request, render, write

pytestmark = pytest.mark.any_tensorflow
yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests: pip install '.[test]'")
ALL_REDUCE = ("--replication=all_reduce",)
RESOLVER = {"jobset": "jobset", "job": "indexed_job", "tfjob": "tf_config", "slurm": "slurm",
            "compose": "flags", "systemd": "flags"}


def documents(request):
  return list(yaml.safe_load_all(render(request)[0].text))


def unit_words(text):
  """The words of ExecStart, as systemd reads them."""
  line = re.search(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.MULTILINE).group(1)
  words = shlex.split(line.replace("\\\n", " "))
  return [word.replace("%%", "\0").replace("%i", "7").replace("\0", "%").replace("$$", "$")
          for word in words]


def expanded(words):
  """The words as the kubelet and Compose pass them on."""
  assert not any(re.search(r"(?<!\$)(\$\$)*\$(?!\$)", word) for word in words)
  return [word.replace("$$", "$") for word in words]


def commands(request):
  """The command of each task of a job."""
  files = render(request)
  if request.target == "systemd":
    return [unit_words(file.text) for file in files]
  if request.target == "slurm":
    script = files[0].text
    line = script[script.index("  --port="):].replace('"$port"', "1").replace("\\\n", " ")
    return [["tf1ps-task"] + shlex.split(line)]
  last = documents(request)[-1]
  if request.target == "compose":
    return [expanded(service["entrypoint"] + service["command"])
            for service in last["services"].values()]
  specs = {
    "jobset": lambda: [job["template"]["spec"] for job in last["spec"]["replicatedJobs"]],
    "job": lambda: [last["spec"]],
    "tfjob": lambda: list(last["spec"]["tfReplicaSpecs"].values())}[request.target]()
  return [expanded(spec["template"]["spec"]["containers"][0]["command"]) for spec in specs]


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("target", TARGETS)
def test_each_task_gets_the_flags_as_they_were_given(target, everything):
  request = rendered.request(target, everything)
  found = commands(request)
  assert found
  for words in found:
    assert os.path.basename(words[0]) == "tf1ps-task"
    assert "--cluster_resolver=" + RESOLVER[target] in words
    if not everything:
      assert "--program=tf1ps_examples.digits" in words
      continue
    folder = "/program" if target in rendered.IN_IMAGES else "/programs"
    assert "--program=%s/my digits.py" % folder in words
    assert "--checkpoint_dir=/check points/a$b%c" in words
    assert [word for word in words if word in rendered.NASTY] == list(rendered.NASTY)


def test_the_policies_of_a_jobset():
  policy, jobset = documents(rendered.request("jobset", evaluator=True, checkpoint_dir="/c",
                                              volume="claim"))
  spec = jobset["spec"]
  jobs = {job["name"]: job["template"]["spec"] for job in spec["replicatedJobs"]}
  assert {name: job["completions"] for name, job in jobs.items()} == {
    "ps": 2, "chief": 1, "worker": 2, "evaluator": 1}
  assert spec["successPolicy"] == {
    "operator": "All", "targetReplicatedJobs": ["chief", "evaluator"]}
  assert spec["failurePolicy"]["rules"] == [{"name": "giveUp", "action": "FailJobSet"}]
  for name, job in jobs.items():
    rules = job["podFailurePolicy"]["rules"]
    assert rules[0] == {"action": "Ignore", "onPodConditions": [
      {"type": "DisruptionTarget", "status": "True"}]}
    assert rules[1:] == ([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]
                         if name == "chief" else [])
    assert (job["completionMode"], job["backoffLimitPerIndex"], job["maxFailedIndexes"]) == (
      "Indexed", 5, 0)
    pod = job["template"]["spec"]
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 30)
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["readinessProbe"]["httpGet"] == {
      "path": "/readyz", "port": "metrics"}
  label = {"jobset.sigs.k8s.io/jobset-name": jobset["metadata"]["name"]}
  assert policy["kind"] == "NetworkPolicy" and policy["spec"] == {
    "podSelector": {"matchLabels": label}, "policyTypes": ["Ingress"],
    "ingress": [{"from": [{"podSelector": {"matchLabels": label}}],
                 "ports": [{"protocol": "TCP", "port": 2222}]}]}


def test_a_jobset_of_one_worker_or_without_ps_has_no_job_for_others():
  for values, names in (({"num_workers": 1}, ["ps", "chief"]),
                        ({"num_ps": None, "flags": ALL_REDUCE}, ["chief", "worker"])):
    last = documents(rendered.request("jobset", **values))[-1]
    assert [job["name"] for job in last["spec"]["replicatedJobs"]] == names


def test_an_indexed_job_succeeds_with_its_chief_and_evaluator():
  for values, indexes in (({}, "2"), ({"evaluator": True, "checkpoint_dir": "gs://b/c"}, "2,5")):
    _, service, job = documents(rendered.request("job", **values))
    assert job["spec"]["successPolicy"] == {"rules": [{"succeededIndexes": indexes}]}
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert job["spec"]["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    assert service["metadata"]["name"] == job["metadata"]["name"] == "digits"
    env = {each["name"]: each["value"]
           for each in job["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env == {"JOB_NAME": "digits", "NUM_PS": "2", "NUM_TASKS": str(5 + bool(values))}


def test_a_tfjob_restarts_its_chief_by_the_exit_code():
  replicas = documents(rendered.request("tfjob"))[-1]["spec"]["tfReplicaSpecs"]
  assert {role: (replica["replicas"], replica["restartPolicy"])
          for role, replica in replicas.items()} == {
    "PS": (2, "OnFailure"), "Chief": (1, "ExitCode"), "Worker": (2, "OnFailure")}
  for replica in replicas.values():  # the operator looks for these names
    container, = replica["template"]["spec"]["containers"]
    assert (container["name"], container["ports"][0]["name"]) == ("tensorflow", "tfjob-port")


def test_compose_restarts_all_but_the_chief_and_publishes_no_port():
  last = documents(rendered.request("compose", True))[-1]
  services = last["services"]
  assert {name: service["restart"] for name, service in services.items()} == {
    "ps-0": "on-failure:5", "ps-1": "on-failure:5", "worker-0": "no", "worker-1": "on-failure:5",
    "worker-2": "on-failure:5", "evaluator": "on-failure:5"}
  assert not any("ports" in service for service in services.values())
  assert {service["user"] for service in services.values()} == {"10001:10001"}
  assert services["ps-0"]["volumes"] == [
    {"type": "volume", "source": "checkpoints", "target": "/check points/a$$b%c"}]
  assert last["volumes"] == {"checkpoints": {}} and last["name"] == "true"


def test_the_units_restart_as_their_roles_need_it():
  files = {file.name: file.text for file in render(rendered.request("systemd", True, name="job"))}
  found = {name: re.search("^Restart=(.*)", text, re.MULTILINE).group(1)
           for name, text in files.items()}
  assert found == {
    "job-ps@.service": "on-abnormal", "job-chief.service": "on-abnormal",
    "job-worker@.service": "on-failure", "job-evaluator.service": "on-failure"}
  assert unit_words(files["job-worker@.service"])[-2:] == ["--job_name=worker", "--task_index=7"]


def test_a_longer_grace_gives_the_scheduler_more_patience():
  for target in TARGETS:
    text = render(rendered.request(target, flags=("--grace=99.5",)))[0].text
    assert re.search(r"(terminationGracePeriodSeconds: |stop_grace_period: |TimeoutStopSec=)105"
                     r"|--signal=TERM@135", text)


def test_limits_of_pods_yield_to_those_that_are_given():
  words = commands(rendered.request("jobset", flags=("--start_timeout=9",)))[0]
  assert [word for word in words if "_timeout=" in word] == [
    "--heartbeat_timeout=30:300", "--start_timeout=9"]


def test_resources_in_the_words_of_each_target():
  values = {"cpus": "2", "memory": "3Gi", "gpus": 1}
  last = documents(rendered.request("jobset", **values))[-1]
  of_ps, of_chief = [job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]
                     for job in last["spec"]["replicatedJobs"][:2]]
  assert of_ps == {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
  assert of_chief["limits"] == {"memory": "3Gi", "nvidia.com/gpu": "1"}
  script = render(rendered.request("slurm", **values))[0].text
  assert "#SBATCH --cpus-per-task=2\n#SBATCH --mem-per-cpu=1536M\n" in script
  assert "#SBATCH --gpus-per-task=1\n" in script and "--label --cpus-per-task=2 \\\n" in script
  assert 'memory": "3072M"' in render(rendered.request("compose", **values))[0].text
  unit = render(rendered.request("systemd", cpus="0.5", memory="3Gi"))[0].text
  assert "CPUQuota=50%\nMemoryMax=3072M\n" in unit


def test_a_unit_may_write_the_folder_of_the_checkpoints():
  for folder, line in (("/check points/a$b%c", '"/check points/a$b%%c"'), ("/c", "/c")):
    text = render(rendered.request("systemd", checkpoint_dir=folder))[0].text
    assert "ReadWritePaths=%s\n" % line in text
  text = render(rendered.request("systemd", checkpoint_dir="gs://bucket/c"))[0].text
  assert "ReadWritePaths" not in text


@pytest.mark.parametrize("target, values, message", [
  ("jobset", {"name": "Digits"}, "--name=Digits must be a DNS label"),
  ("jobset", {"name": "a\n- b"}, "a line break or control character"),
  ("jobset", {"name": "1a"}, "a letter at the start"),
  ("jobset", {"name": "a" * 48}, "is too long: the name of a pod would have 68 letters"),
  ("jobset", {"program": "__.py"}, "--name=__ must be a DNS label"),
  ("jobset", {"image": None}, "--image is missing"),
  ("jobset", {"image": "a b"}, "--image=a b is not the name of an image"),
  ("jobset", {"image": '"x'}, "is not the name of an image"),
  ("slurm", {"image": "a"}, "--image is for containers"),
  ("slurm", {"program": "x; rm"}, "--program=x; rm is neither a module nor the path of a .py file"),
  ("systemd", {"program": "digits.py"}, "--program=digits.py must be an absolute path"),
  ("job", {"program": "a$b.py", "name": "a"}, "a Dockerfile cannot copy a file of this name"),
  ("slurm", {"flags": ("--grace=long",)}, "--grace=long after --: it must be a number of seconds"),
  ("slurm", {"num_ps": -1}, "--num_ps=-1 must be at least 0"),
  ("slurm", {"num_workers": 0}, "--num_workers=0 must be at least 1: the chief is a worker"),
  ("slurm", {"cpus": "1.5"}, "--cpus=1.5 must be a whole number for Slurm"),
  ("job", {"cpus": "two"}, "--cpus=two must be a number above 0"),
  ("job", {"cpus": "0"}, "--cpus=0 must be a number above 0"),
  ("job", {"memory": "4G"}, "--memory=4G must be a whole number with Mi, Gi or Ti"),
  ("job", {"gpus": -1}, "--gpus=-1 must be 0 or more"),
  ("systemd", {"gpus": 1}, "--gpus: systemd divides no GPUs"),
  ("slurm", {"evaluator": True}, "--evaluator needs --checkpoint_dir"),
  ("slurm", {"volume": "v", "checkpoint_dir": "c"}, "--volume is for containers"),
  ("job", {"volume": "v"}, "--volume needs --checkpoint_dir"),
  ("job", {"volume": "v", "checkpoint_dir": "gs://b"}, "--volume needs --checkpoint_dir"),
  ("job", {"checkpoint_dir": "/c"}, "/c is lost with the container: give --volume"),
  ("job", {"checkpoint_dir": "c", "volume": "v"}, "must be an absolute path other than /, or a U"),
  ("compose", {"checkpoint_dir": "/", "volume": "v"}, "must be an absolute path other than /"),
  ("compose", {"checkpoint_dir": "/c:ro", "volume": "v"}, "cannot be mounted: it has a colon"),
  ("job", {"checkpoint_dir": "/c", "volume": "My_Claim"}, "is not the name of a PersistentVolume"),
  ("compose", {"checkpoint_dir": "/c", "volume": "./c"}, "neither the name of a volume nor an abs"),
  ("systemd", {"worker_hosts": ""}, "--worker_hosts is missing"),
  ("systemd", {"worker_hosts": "b"}, '--worker_hosts: "b" has no port'),
  ("systemd", {"worker_hosts": "b:99999"}, "--worker_hosts"),
  ("systemd", {"worker_hosts": "a:2222"}, "a:2222"),
  ("systemd", {"num_workers": 2}, "with systemd leave them out"),
  ("slurm", {"ps_hosts": "a:2222"}, "--ps_hosts is for --to=systemd"),
  ("slurm", {"flags": ("digits.py",)}, "'digits.py' after -- is not a flag of the program"),
  ("systemd", {"flags": ("--tls_dir=certs",), "ps_hosts": "a:1", "worker_hosts": "b:1"},
   "--tls_dir=certs after -- must be an absolute path"),
  ("jobset", {"flags": ("--tls_dir=/tls",)}, "may not make the network namespace that it needs"),
  ("slurm", {"flags": ALL_REDUCE}, "--replication=all_reduce has no ps, but there are 2"),
  ("slurm", {"num_ps": 0}, "a job without ps needs --replication=all_reduce after --"),
  ("systemd", {"ps_hosts": ""}, "a job without ps needs --replication=all_reduce after --"),
  ("slurm", {"flags": ("--port=1",)}, "--port after --: the files have it already; leave it out"),
  ("slurm", {"flags": ("--num_ps=1",)}, "--num_ps after --: give it before --"),
  ("slurm", {"flags": ("--noevaluator",)}, "--evaluator after --: give it before --"),
  ("slurm", {"flags": ("--a=b\nc",)}, "a line break or control character"),
  ("nomad", {}, "--to must be one of jobset, job, slurm, compose, systemd, tfjob, got nomad"),
])
def test_bad_values_are_refused(target, values, message):
  with pytest.raises(DeployError, match=re.escape(message)):
    render(rendered.request(target, **values))


def test_a_program_with_a_wrong_line_is_refused(tmp_path):
  path = tmp_path / "train.py"
  path.write_text("def model_fn(features, labels, mode):\n  return 1 +\n")
  with pytest.raises(DeployError, match=r"--program=%s:2: invalid syntax" % re.escape(str(path))):
    render(rendered.request("slurm", program=str(path)))


def test_a_program_is_read_by_the_encoding_that_it_declares(tmp_path):
  path = tmp_path / "train.py"
  path.write_bytes(b"# -*- coding: latin-1 -*-\nname = '\xe9'\n")
  assert render(rendered.request("slurm", program=str(path)))


@pytest.mark.parametrize("source, has_extra", [
  ("import tensorflow.compat.v1 as tf\ny = tf.layers.dense(1, 2)", True),
  ("import tf1ps.v1 as tf\ny = tf.nn.rnn_cell.LSTMCell(2)", True),
  ("import tensorflow as tf\ny = tf.contrib.layers.fully_connected(1, 2)", True),
  ("from tensorflow.contrib import slim", True),
  ("import tf_slim as slim", True),
  ("import tf1ps.v1 as tf\ny = tf.estimator.Estimator(print)", True),
  ("import tensorflow.compat.v1 as tf\ny = tf.matmul(1, 2)  # not tf.layers.dense", False)])
def test_the_image_of_a_legacy_program_has_the_extra(tmp_path, source, has_extra):
  path = tmp_path / "train.py"
  path.write_text(source)
  for target in rendered.IN_IMAGES:
    text = render(rendered.request(target, program=str(path)))[-1].text
    assert ('/wheels/*.whl "tf1ps[legacy]" prometheus_client' in text) == has_extra
    assert "pip install --no-cache-dir /wheels/*.whl " in text


def test_each_target_has_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  for target in ("jobset", "compose"):
    argv = ["render", "--to=" + target, "--program=pkg.digits", "--image=r/t:1"]
    assert program.run(argv) == 0
    assert "wrote deploy/%s/Dockerfile" % target in capsys.readouterr().out.splitlines()


def test_the_longest_name_still_fits_a_pod():
  name = "a" * 43
  render(rendered.request("jobset", name=name))
  assert len("%s-evaluator-0-3-abcde" % name) <= 63


def test_files_are_not_replaced_without_force(tmp_path):
  files = [File("a", "new"), File("b", "new")]
  (tmp_path / "b").write_text("mine")
  with pytest.raises(DeployError, match="b is there already, with other content: --force"):
    write(files, str(tmp_path))
  assert (tmp_path / "b").read_text() == "mine" and not (tmp_path / "a").exists()
  write(files, str(tmp_path), force=True)
  write(files, str(tmp_path))  # the same content
  assert (tmp_path / "b").read_text() == "new"


@pytest.mark.parametrize("force", [False, True])
def test_no_file_is_written_if_one_of_them_cannot_be(tmp_path, force):
  (tmp_path / "a").write_text("old")
  (tmp_path / "b").mkdir()
  with pytest.raises(DeployError, match="b is a folder: remove it, or name another --output_dir"):
    write([File("a", "old" if not force else "new"), File("b", "")], str(tmp_path), force)
  assert (tmp_path / "a").read_text() == "old" and sorted(os.listdir(str(tmp_path))) == ["a", "b"]


def test_a_full_disk_leaves_the_files_as_they_were(tmp_path):
  (tmp_path / "a").write_text("old")
  (tmp_path / "b.part").symlink_to("/dev/full")
  with pytest.raises(DeployError, match="No space left on device"):
    write([File("a", "new"), File("b", "x" * 100000)], str(tmp_path), force=True)
  assert (tmp_path / "a").read_text() == "old" and os.listdir(str(tmp_path)) == ["a"]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(DeployError, match="file: (File exists|Not a directory)"):
    write([File("a", "")], str(tmp_path / "file"))


def test_the_program_writes_the_files_and_says_what_to_do_next(tmp_path, capsys):
  folder = tmp_path / "out"
  argv = ["render", "--to=jobset", "--program=train.py", "--image=r/t:1",
          "--output_dir=%s" % folder, "--", "--steps=5", "--own"]
  assert program.run(argv) == 0
  out, err = capsys.readouterr()
  assert not err and out.splitlines() == [
    "wrote %s/jobset.yaml" % folder, "wrote %s/Dockerfile" % folder,
    "put the wheel of tf1ps and train.py into %s, and then:" % folder,
    "  docker build --tag r/t:1 %s && docker push r/t:1" % folder,
    "  kubectl apply --filename %s/jobset.yaml" % folder]
  first = (folder / "jobset.yaml").read_text().splitlines()[0]
  assert first == ("# Made by: tf1ps-deploy render --to=jobset --program=train.py --name=train "
                   "--num_ps=1 --num_workers=2 --image=r/t:1 -- --steps=5 --own")
  assert 'COPY ["train.py", "/program/"]' in (folder / "Dockerfile").read_text()


@pytest.mark.parametrize("argv, code, message", [
  (["render", "--to=nomad", "--program=a"], 2, "invalid choice: 'nomad'"),
  (["render", "--to=slurm"], 2, "required: --program"),
  ([], 2, "usage:"),
  (["render", "--to=slurm", "--program=a", "--", "--steps=x"], 1,
   "tf1ps-deploy: --steps=x after --: it must be a number"),
  (["render", "--to=slurm", "--program=a", "--", "--steps=0"], 1,
   "tf1ps-deploy: --steps=0 after --: it must be above 0"),
  (["render", "--to=slurm", "--program=a", "--", "--steps"], 1,
   "tf1ps-deploy: --steps after -- has no value"),
])
def test_a_wrong_command_line_writes_nothing(argv, code, message, tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  assert program.run(argv) == code
  assert message in capsys.readouterr().err and not os.listdir(str(tmp_path))


def test_the_program_does_not_import_tensorflow():
  code = ("import sys; from tf1ps.cli import deploy; deploy.run(['--version']); "
          "assert not {'tensorflow', 'numpy'} & set(sys.modules)")
  subprocess.run([sys.executable, "-c", code], check=True)


def test_the_default_name_is_the_programs():
  for given, name in (("a/My_Model.py", "my-model"), ("pkg.digits", "digits")):
    file, = render(Request("slurm", given))
    assert file.name == name + ".sbatch"


@pytest.mark.parametrize("values, ranks", [
  ({}, "0 to 1 are ps, 2 is the chief (worker 0), 3 to 4 are workers"),
  ({"num_ps": 1, "num_workers": 2, "evaluator": True, "checkpoint_dir": "c"},
   "0 is a ps, 1 is the chief (worker 0), 2 is a worker, 3 is the evaluator"),
  ({"num_ps": 0, "num_workers": 1, "flags": ALL_REDUCE}, "0 is the chief (worker 0)"),
])
def test_a_script_says_which_rank_is_which_task(values, ranks):
  assert "# %s.\n" % ranks in render(rendered.request("slurm", **values))[0].text
