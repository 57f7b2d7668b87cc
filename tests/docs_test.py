"""Every command in a document is run: here, or by `.ci/run`."""
from __future__ import annotations

import gzip
import os
import pathlib
import re
import shlex
import struct
import subprocess
import sys

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness, needs, program_tasks
from tf1ps.cli import certs
from tf1ps.program import evaluator
from tf1ps.session import summaries
from tf1ps.training import job_summaries, staleness_recorder, traffic_report

ROOT = pathlib.Path(__file__).resolve().parents[1]
# 0.98 as a rule; 0.94 has been seen where a worker was held up between gradient and update.
LEARNT = re.compile(r"test accuracy (0\.[89]|1\.0)")
FIRST = "docs/programs.md"
DOCUMENTS = ["README.md", "BUILD.md", "examples/README.md", "examples/data/README.md"] + sorted(
  str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))


def commands(document):
  """The commands in a document's code blocks, each as one line."""
  text = (ROOT / document).read_text(encoding="utf-8")
  found = []
  for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
    if language in ("", "sh"):
      lines = block.replace("\\\n", " ").splitlines()
      found += [re.sub(r"\s+#.*", "", line).strip() for line in lines if line.strip()]
  return found


def of_program(document, name):
  """The arguments of each command of a program in a document."""
  found = []
  for command in commands(document):
    words = shlex.split(command)
    if words[0].replace(".venv/bin/", "") == name:
      found.append(words[1:])
  return found


def block_with(document, first_line):
  """The code block of a document that begins with this line."""
  text = (ROOT / document).read_text(encoding="utf-8")
  found, = re.findall(
    r"^```\w*\n(%s.*?)^```" % re.escape(first_line), text, re.DOTALL | re.MULTILINE)
  return found


def launcher(start, arguments, folder):
  """Runs tf1ps-local to its end; returns its output."""
  task = start("tf1ps-local", program_tasks.run_program, "tf1ps-local", arguments, folder)
  assert task.wait(100) == 0, task.output
  return task.output


def make(target, folder):
  """Runs a target of the Makefile there; returns its output.

  Without what a make around these tests hands on: its VENV=... would be this make's VENV too, and
  `make clean` would remove the environment that the tests run in.
  """
  env = {name: value for name, value in os.environ.items()
         if name not in ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS")}
  return subprocess.run(["make", "-s", target], cwd=str(folder), env=env, check=True,
                        stdout=subprocess.PIPE, universal_newlines=True).stdout


def end_well(tasks):
  for task in tasks:
    assert task.wait() == 0, task.output


@pytest.fixture
def linear(tmp_path):
  """A folder with the first program in it."""
  text = (ROOT / FIRST).read_text()
  program = re.search("```python\n(.*?)```", text, re.DOTALL).group(1)
  (tmp_path / "linear.py").write_text(program)
  return tmp_path


@pytest.mark.slow
def test_first_program_on_one_machine(start, linear):
  arguments, = [a for a in of_program(FIRST, "tf1ps-local") if "linear.py" in a[0]]
  output = launcher(start, arguments, linear)
  assert "test error 0." in output
  logs = re.search(r"logs in (\S+) until a good end", output).group(1)
  assert not os.path.exists(logs)


@pytest.mark.slow
def test_first_program_by_itself(linear):
  arguments, = [a for a in of_program(FIRST, "tf1ps-local") if "linear.py" in a[0]]
  done = subprocess.run([sys.executable, "linear.py", *arguments[1:]], cwd=str(linear),
                        stdout=subprocess.PIPE, universal_newlines=True, timeout=100)
  assert done.returncode == 0 and "test error 0." in done.stdout, done.stdout


@pytest.mark.slow
def test_docs_a_job_from_python(linear):
  (linear / "trains.py").write_text(block_with("docs/training.md", "# trains.py"))
  done = subprocess.run([sys.executable, "trains.py"], cwd=str(linear), check=True, timeout=100,
                        stdout=subprocess.PIPE, universal_newlines=True)
  assert re.match(r"step 30[01]: error 0\.\d{3}$", done.stdout.splitlines()[-1]), done.stdout


@pytest.mark.slow
def test_first_program_on_several_machines(start, linear):
  hosts = dict(zip(("a:2222", "b:2222", "c:2222"), harness.addresses(3)))
  tasks = []
  for name in ("tf1ps-ps", "tf1ps-worker"):
    for arguments in of_program(FIRST, name):
      text = "\n".join(arguments)
      for host, address in hosts.items():
        text = text.replace(host, address)
      tasks.append(start(name, program_tasks.run_program, name, text.split("\n"), linear))
  assert len(tasks) == 3
  end_well(tasks)


def test_first_program_shows_what_make_train_calls():
  said = [c for c in commands(FIRST) if c.startswith("tf1ps-local --program=examples")]
  assert said == ["tf1ps-local --program=examples/digits.py " + make("train-flags", ROOT).strip()]


@pytest.mark.slow
def test_security_in_a_private_network():
  command, = [c for c in commands("docs/security.md") if c.startswith("unshare")]
  needs.unshare("-rn", "ip", "link", "set", "lo", "up")
  command = command.replace(".venv/bin/tf1ps-local", "%s bin/tf1ps_local.py" % sys.executable)
  done = subprocess.run(command, shell=True, cwd=str(ROOT), stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, universal_newlines=True, timeout=100)
  assert done.returncode == 0 and LEARNT.search(done.stdout), done.stdout
  assert "anyone who can connect" not in done.stdout


@pytest.mark.slow
def test_security_with_links(start, tmp_path):
  """The job of three hosts, all of them this machine."""
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  addresses = dict(zip(("10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"), harness.addresses(3)))

  def here(arguments):
    text = "\n".join(arguments)
    for host, address in addresses.items():
      text = text.replace(host, address)
    return re.sub(r"10\.0\.0\.\d", "127.0.0.1", text).split("\n")

  certs_arguments, = of_program("docs/security.md", "tf1ps-certs")[:1]
  argv = here(certs_arguments)
  assert certs.run([argv[0].replace("certs", str(tmp_path / "certs")), argv[1]]) == 0
  tasks = [start(name, program_tasks.run_program, name, here(arguments), tmp_path)
           for name in ("tf1ps-ps", "tf1ps-worker")
           for arguments in of_program("docs/security.md", name)]
  assert len(tasks) == 3
  if tasks[0].wait() and "does not permit" in tasks[0].output:
    needs.skip("namespaces")
  end_well(tasks)
  assert LEARNT.search(tasks[1].output)


@pytest.mark.slow
def test_build_by_hand_in_three_shells(start):
  hosts, = [c for c in commands("BUILD.md") if c.startswith("HOSTS=")]
  for port, address in zip(("2222", "2223", "2224"), harness.addresses(3)):
    hosts = hosts.replace("127.0.0.1:" + port, address)
  tasks = []
  for name in ("tf1ps-ps", "tf1ps-worker"):
    for arguments in of_program("BUILD.md", name):
      position = arguments.index("$HOSTS")
      arguments[position:position + 1] = shlex.split(hosts.split("=", 1)[1])[0].split()
      tasks.append(start(name, program_tasks.run_program, name, arguments, ROOT))
  assert len(tasks) == 3
  end_well(tasks)
  assert any(LEARNT.search(task.output) for task in tasks)


@pytest.mark.slow
def test_build_with_mnist(start, tmp_path):
  (tmp_path / "mnist").mkdir()
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  for part in ("train", "t10k"):
    for kind, values in (("images-idx3", np.zeros([64, 28, 28], np.uint8)),
                         ("labels-idx1", np.arange(64, dtype=np.uint8) % 10)):
      head = struct.pack(">I%dI" % values.ndim, 0x800 | values.ndim, *values.shape)
      with gzip.open(str(tmp_path / "mnist" / (part + "-%s-ubyte.gz" % kind)), "wb") as file:
        file.write(head + values.tobytes())
  arguments, = [a for a in of_program("BUILD.md", "tf1ps-local") if "--data_dir=mnist" in a]
  assert "test accuracy 0." in launcher(start, arguments, tmp_path)


@pytest.mark.slow
def test_docs_predict_and_export(start, tmp_path):
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  launcher(start, ["--program=examples/digits.py", "--num_workers=1", "--steps=20",
                   "--checkpoint_dir=checkpoints"], tmp_path)
  for arguments in of_program("docs/programs.md", "tf1ps-predict"):
    end_well([start("predict", program_tasks.run_program, "tf1ps-predict", arguments, tmp_path)])
  assert (tmp_path / "digits.csv").read_text().count("\n") == 361
  assert (tmp_path / "exported" / "saved_model.pb").exists()


@pytest.mark.slow
def test_docs_two_jobs_on_one_ps_and_their_reset(start, tmp_path):
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  hosts = dict(zip(("a:2222", "c:2222", "d:2222"), harness.addresses(3)))

  def begin(name, arguments):
    text = "\n".join(arguments)
    for host, address in hosts.items():
      text = text.replace(host, address)
    return start(name, program_tasks.run_program, name, text.split("\n"), tmp_path)

  arguments, = of_program("docs/cluster.md", "tf1ps-ps")
  begin("tf1ps-ps", arguments).wait_for("serving at")
  workers = [begin("tf1ps-worker", a) for a in of_program("docs/cluster.md", "tf1ps-worker")]
  assert len(workers) == 2
  end_well(workers)
  assert all("test accuracy 0." in worker.output for worker in workers)
  codes = []
  for arguments in of_program("docs/cluster.md", "tf1ps-reset"):
    task = begin("tf1ps-reset", arguments)
    codes.append(task.wait())
    assert task.lines[0].startswith("/job:ps/task:0 at %s: cleared " % hosts["a:2222"])
    # The workers have left: it says so where it was told of them.
    assert task.output.count("not cleared: refused") == 2 * codes[-1]
  assert codes == [1, 1, 0]


def test_build_says_how_to_get_what_tests_need():
  text = (ROOT / "BUILD.md").read_text()
  assert all("| %s | %s |" % row in text for row in needs.NEEDS.items())


def test_make_help_names_every_target():
  targets = re.search(
    r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text().replace("\\\n", ""), re.MULTILINE).group(1)
  said = make("help", ROOT)
  for target in set(targets.split()) - {"help", "train-flags"}:
    assert "make %s " % target in said


def test_make_clean_removes_what_was_built_here_and_nothing_else(tmp_path, monkeypatch):
  elsewhere, here = tmp_path / "elsewhere", tmp_path / "here"
  monkeypatch.setenv("MAKEFLAGS", " -- VENV=%s" % elsewhere)  # as `make VENV=... test` hands it on
  built = [here / name for name in (
    ".venv", ".venv-legacy", ".venv-newest", "dist", "build", "site", "docs/api", "x.egg-info",
    ".pytest_cache", ".ruff_cache", ".mypy_cache", "tf1ps/__pycache__")]
  for folder in built + [elsewhere, here / "tests"]:
    folder.mkdir(parents=True)
  (here / "Makefile").write_text((ROOT / "Makefile").read_text())
  make("clean", here)
  assert not any(folder.exists() for folder in built)
  assert sorted(path.name for path in here.iterdir()) == [
    "Makefile", "docs", "tests", "tf1ps"]
  assert elsewhere.exists()


@pytest.mark.slow
def test_docs_lines_of_files(start, tmp_path):
  (tmp_path / "lines.py").write_text(block_with("docs/data.md", "# lines.py"))
  (tmp_path / "data").mkdir()
  for index in range(2):
    (tmp_path / "data" / ("%d.csv" % index)).write_text("x,y\n" + "".join(
      "%g,%g\n" % (number / 50, number / 25) for number in range(50)))
  arguments, = [a for a in of_program("docs/data.md", "tf1ps-local") if "lines.py" in a[0]]
  assert re.search(r"test error 0\.[0-4]", launcher(start, arguments, tmp_path))


# What runs each command that a document shows.
COVERED = [
  (r"make (train|test|test-legacy|test-jobs|lint|wheel)\b",
   ".ci/run"),
  (r"make bench(-quick| ARGS=|$)", "tests/benchmarks/main_test.py"),
  (r"make examples ARGS=B01|python examples/book/", "tests/examples/every_example_test.py"),
  (r"\.venv/bin/python -m benchmarks(\.scaling_model|\.page)? ", "tests/benchmarks"),
  (r"(legacy|today)/bin/(tf1ps-run|python) ", "tests/legacy/migrating_test.py"),
  (r"(legacy|today)/bin/pip install|python3 -m venv today$", "Makefile, .ci/run"),
  (r"make (help|clean)$", "test_make_*"),
  (r"make (chaos|soak)|python -m tools.chaos check", "tests/survival/chaos_run_test.py"),
  (r"python3 -m venv \.venv$|\.venv/bin/pip install|\.venv/bin/python -m pytest$", "Makefile"),
  (r"tf1ps-local --program=examples/digits.py --num_ps=2",
   "test_first_program_shows_what_make_train_calls"),
  (r"tf1ps-local --program=examples/digits.py --(sync_replicas|num_workers=3|num_workers=2 "
   "--epochs=5 --|epochs=5 --num_workers=2 )", "test_docs_of_several_local_jobs"),
  (r"tf1ps-local --program=examples/digits.py --num_workers=2 --steps=400 ",
   "test_docs_learning_rate"),
  (r"tf1ps-local --program=examples/digits.py --shard=dynamic", "test_docs_ranges_by_flag"),
  (r"srun --nodes=2 --ntasks=4 tf1ps-task --program=examples/digits.py", "tests/cli/task_test.py"),
  (r"srun --ntasks=3 tf1ps-run --cluster_resolver=slurm trainer.py", "tests/cli/run_test.py"),
  (r"tf1ps-local .*--trace_steps=", "tests/monitoring/step_tracer_test.py"),
  (r"tf1ps-local --program=examples/bags.py", "tests/transfer/documents_test.py"),
  (r"tensorboard --logdir", "TensorBoard's own program"),
  (r"tf1ps-local --program=examples/digits.py --epochs=300 .* --evaluator",
   "tests/end_to_end/tensorboard_test.py"),
  (r"tf1ps-local --program=two_optimizers.py", "test_docs_two_optimizers"),
  (r"tf1ps-local --program=linear.py", "test_first_program_on_one_machine"),
  (r"tf1ps-local --program=lines.py", "test_docs_lines_of_files"),
  (r"tf1ps-(certs|ps|worker) +--(dir|tls_dir)=|pip install .tf1ps.tls.",
   "test_security_with_links"),
  (r"tf1ps-(ps|worker) +--ps_hosts=a:2222 .*--(persistent|container)|tf1ps-reset ",
   "test_docs_two_jobs_on_one_ps_and_their_reset"),
  (r"tf1ps-(ps|worker) +--ps_hosts=a:2222", "test_first_program_on_several_machines"),
  (r"unshare -rn", "test_security_in_a_private_network"),
  (r"nvidia-smi$|\.venv/bin/python -c .import tensorflow as tf; print|CUDA_VISIBLE_DEVICES=0 make",
   "nothing: no GPU was at hand, and BUILD.md says so"),
  (r"HOSTS=|\.venv/bin/tf1ps-(ps|worker) ", "test_build_by_hand_in_three_shells"),
  (r"\.venv/bin/tf1ps-local .*--data_dir=mnist", "test_build_with_mnist"),
  (r"tf1ps-predict --program=examples/digits.py", "test_docs_predict_and_export"),
  (r"python examples/(ensemble_queues|fill_queue|model_parallel)\.py", "tests/examples"),
  (r"tf1ps-run (trainer\.py|-m trainers\.wide) --job_name=", "tests/cli/run_test.py"),
  (r"TF_CONFIG=.* tf1ps-run examples/flats\.py ", "tests/v1/estimator_jobs_test.py"),
  (r"tf1ps-local .*--metrics_port=", "tests/monitoring/metrics_test.py"),
  (r"tf1ps-(status|top) ", "tests/monitoring/status_test.py"),
  (r"tf1ps-doctor ", "tests/doctor/page_test.py"),
  (r"tf1ps-(deploy render |task --ps_hosts=a:|local --program=tf1ps_examples)",
   "tests/deploy/page_test.py"),
  (r"sbatch |kubectl apply .*jobset", "tests/deploy/three_hosts_test.py runs what they start"),
  (r"scancel |kubectl |docker |systemctl |journalctl |cp dist/|useradd |python3 -m venv /opt|/opt/",
   "nothing: no scheduler was at hand, and docs/deploying.md says so"),
  (r"tf1ps-ssh hosts\.txt -- ", "tests/launch/ssh_test.py"),
  (r"--ps_hosts=a:2222,b:2222", "no command: the flags that several share"),
]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_is_run_somewhere(document):
  unknown = [c for c in commands(document) if not any(re.match(p, c) for p, _ in COVERED)]
  assert not unknown, "%s shows commands that nothing runs: %s" % (document, unknown)
  for target in re.findall(r"^make (\S+)", "\n".join(commands(document)), re.MULTILINE):
    assert re.search(r"^%s:" % re.escape(target), (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_docs_have_the_tags_of_the_summaries():
  page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
  for tag in (traffic_report.TAG, staleness_recorder.TAG, summaries.StepCounter.TAG,
              job_summaries.FLAGS_TAG, job_summaries.STEPS_TAG, job_summaries.QUEUES_TAG):
    assert "|`%s" % tag in page
  assert "`%s...`" % job_summaries.EXAMPLES_TAG in page
  assert "`checkpoints/%s/`" % evaluator.SUMMARIES in page


@pytest.mark.slow
def test_docs_a_cluster_in_a_notebook(linear):
  (linear / "notebook.py").write_text("from linear import input_fn, model_fn\n" + block_with(
    "docs/training.md", "# A cell of a notebook"))
  done = subprocess.run([sys.executable, "notebook.py"], cwd=str(linear), stdout=subprocess.PIPE,
                        universal_newlines=True, check=True, timeout=120)
  step, metrics = done.stdout.splitlines()[-1].split(" ", 1)
  assert int(step) >= 300 and "'error'" in metrics


@pytest.mark.slow
def test_docs_a_coordinator(tmp_path):
  (tmp_path / "coordinator.py").write_text(block_with("docs/coordinator.md", "# coordinator.py"))
  done = subprocess.run([sys.executable, "coordinator.py"], cwd=str(tmp_path), check=True,
                        stdout=subprocess.PIPE, universal_newlines=True, timeout=120)
  assert done.stdout.splitlines()[-1] == "last loss 0.000"


@pytest.mark.slow
def test_docs_two_optimizers(start, tmp_path):
  program = block_with("docs/training.md", "import numpy as np\n")
  (tmp_path / "two_optimizers.py").write_text(program)
  arguments, = [a for a in of_program("docs/training.md", "tf1ps-local") if "two_opt" in a[0]]
  output = launcher(start, arguments, tmp_path)
  assert output.count("a hook of the program requested the stop, exit code 0") >= 1
  assert re.search(r"test loss 0\.0\d+ at step (\d+) ", output)


@pytest.mark.slow
def test_queues_two_programs(start, tmp_path):
  program = block_with("docs/queues.md", "# shared.py")
  for number, address in zip((2221, 2222, 2223), harness.addresses(3)):
    program = program.replace("127.0.0.1:%d" % number, address)
  (tmp_path / "shared.py").write_text(program)
  _, trainer, loader = [start(role, program_tasks.run_file, "shared.py", [role], tmp_path)
                        for role in ("ps", "trainer", "loader")]
  end_well([loader, trainer])
  assert harness.without_logs(trainer.lines)[-4:] == [
    "[1. 2.]", "[3. 4.]", "[5. 6.]", "the loader is done"], trainer.output


@pytest.mark.parametrize("last, said", [
  ("4,4", "the data has ended"),
  ("4,x", "data.csv:4: Field 1 in record 0 is not a valid float: x")])
def test_pipelines_loop(start, tmp_path, last, said):
  (tmp_path / "loop.py").write_text(block_with("docs/data.md", "# loop.py"))
  (tmp_path / "data.csv").write_text("1,1\n2,2\n3,3\n%s\n" % last)
  task = start("loop", program_tasks.run_file, "loop.py", ["data.csv"], tmp_path)
  code = task.wait()
  assert code == (last != "4,4") and said in task.output, task.output
  assert task.output.count("[array([") == (1 if code else 2)


@pytest.mark.slow
def test_docs_ranges_by_flag(start, tmp_path):
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  arguments, = [a for a in of_program("docs/data.md", "tf1ps-local") if "--shard=dynamic" in a]
  assert LEARNT.search(launcher(start, arguments, tmp_path))


@pytest.mark.slow
def test_docs_ranges_by_hand(start, tmp_path):
  (tmp_path / "ranges.py").write_text(block_with("docs/data.md", "# ranges.py"))
  for index in range(7):
    (tmp_path / ("%d.txt" % index)).write_text("".join("%d\n" % n for n in range(index, 30, 7)))
  hosts = harness.addresses(3)
  tasks = [start("worker " + index, program_tasks.run_file, "ranges.py", [index, *hosts], tmp_path)
           for index in "01"]
  tasks.append(start("ps", program_tasks.run_program, "tf1ps-ps", [
    "--ps_hosts=" + hosts[0], "--worker_hosts=" + ",".join(hosts[1:])], tmp_path))
  end_well(tasks)
  totals = [float(total) for task in tasks
            for total in re.findall(r"^total ([\d.]+)", task.output, re.MULTILINE)]
  assert max(totals) == 2 * sum(range(30))


@pytest.mark.slow
def test_docs_learning_rate(start, tmp_path):
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  arguments, = [a for a in of_program("docs/training.md", "tf1ps-local") if "--steps=400" in a]
  assert LEARNT.search(launcher(start, arguments, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("page, number, count", [
  (page, number, count) for page, count in (("transfer", 2), ("replication", 5))
  for number in range(count)])
def test_docs_of_several_local_jobs(start, tmp_path, page, number, count):
  (tmp_path / "examples").symlink_to(ROOT / "examples")
  found = [a for a in of_program("docs/%s.md" % page, "tf1ps-local")
           if page == "replication" or "--num_workers=2" in a and "--epochs=5" in a]
  assert len(found) == count
  assert LEARNT.search(launcher(start, found[number], tmp_path))


@pytest.mark.slow
def test_synchronous_replicas_by_hand(start, tmp_path):
  program = block_with("docs/replication.md", "# replicas.py")
  for number, address in zip((2231, 2232, 2233), harness.addresses(3)):
    program = program.replace("127.0.0.1:%d" % number, address)
  (tmp_path / "replicas.py").write_text(program)
  tasks = [start(" ".join(argv), program_tasks.run_file, "replicas.py", argv, tmp_path)
           for argv in (["ps", "0"], ["worker", "0"], ["worker", "1"])]
  end_well(tasks)
  for worker in tasks[1:]:
    # The numbers have no end of line, and TensorFlow's log may stand behind one of them.
    numbers = re.findall(r"\(\d,[\d.]+\)", worker.output)
    assert "".join(numbers) == "(1,1.0)(2,1.5)(3,1.75)(4,1.875)(5,1.9375)", worker.output


def test_what_a_step_sends(start, tmp_path):
  (tmp_path / "sends.py").write_text(block_with("docs/monitoring.md", "# sends.py"))
  task = start("sends.py", program_tasks.run_file, "sends.py", [], tmp_path)
  end_well([task])
  table = block_with("docs/monitoring.md", "a step ").splitlines()
  shown = len(table) if tf.version.VERSION >= "2" else 0  # of 1.15 only what comes down is the same
  lines = harness.without_logs(task.lines)[-len(table):]
  assert lines[:shown] == table[:shown]
  assert [line[:48] for line in lines[:4]] == [line[:48] for line in table[:4]]
