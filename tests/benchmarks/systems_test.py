from __future__ import annotations

import re

import pytest

from benchmarks import comparisons, interleaving, links, models, registry, systems
from benchmarks.__main__ import parse

RUN = systems.Run("L", "/folder", links.LOOPBACK, steps=120, seed=1, minibatches=240)


def test_a_line_of_tf1ps_is_its_programs_with_its_flags():
  line = comparisons.tf1ps("x", "--sync_replicas", "--threads=1", workers=2,
                           ps=2)
  tasks, addresses = systems.tasks_of(line, RUN)
  assert [(task.job, task.index) for task in tasks] == [
    ("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)]
  assert len(set(addresses["ps"] + addresses["worker"])) == 4
  worker, ps = tasks[-1].command, tasks[0].command
  assert worker[1].endswith("tf1ps_worker.py") and ps[1].endswith("tf1ps_ps.py")
  for option in ("--sync_replicas", "--threads=1", "--steps=120",
                 "--bench_model=L",
                 "--worker_hosts=" + ",".join(addresses["worker"]), "--task_index=1"):
    assert option in worker
  assert "--threads=1" in ps and "--sync_replicas" not in ps


def test_a_peer_counts_where_somebody_asks():
  tasks, _ = systems.tasks_of(comparisons.CLASSIC._replace(workers=2), RUN)
  assert [bool(task.counter) for task in tasks] == [False, True, True]
  assert "--steps=60" in tasks[1].command  # half of the minibatches each
  tasks, _ = systems.tasks_of(comparisons._SYNC[0], RUN)
  assert [bool(task.counter) for task in tasks] == [False, True, False]
  tasks, _ = systems.tasks_of(comparisons.STRATEGY[0], RUN)
  assert [(task.job, bool(task.counter)) for task in tasks] == [
    ("ps", False), ("worker", False), ("chief", True)]
  tasks, _ = systems.tasks_of(comparisons.PEERS[2], RUN)
  assert [task.job for task in tasks] == ["worker"]


def test_workers_alone_see_the_gpus_that_this_process_sees(monkeypatch):
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
  for line in comparisons._GPU[1:4]:
    ps, worker = (task.command for task in systems.tasks_of(line, RUN)[0])
    assert worker[:2] == ["env", "CUDA_VISIBLE_DEVICES=2,3"]
    assert not any("CUDA" in word for word in ps)  # `systems.environment` hides the GPUs


def test_a_benchmark_of_gpus_is_skipped_without_one(monkeypatch):
  monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
  with pytest.raises(interleaving.Skipped, match="there is no GPU"):
    comparisons.run(comparisons.COMPARISONS["gpu_narrow"][0], interleaving.Pace(), 0, 0)


def test_every_comparison_names_models_that_exist_and_lines_that_differ():
  for table in (comparisons.COMPARISONS, comparisons.QUICK):
    for name, made in table.items():
      for one in made:
        models.get(one.model)
        names = [line.name for line in one.lines]
        assert len(set(names)) == len(names) and (one.base or "classic") in names, name
        assert (one.loss_base or names[0]) in names, name
  assert set(comparisons.QUICK) < set(comparisons.COMPARISONS)


def test_the_names_are_those_of_the_documents():
  with open(systems.ROOT + "/docs/benchmarks.md", encoding="utf-8") as file:
    said = set(re.findall(r"^\|`(\w+)`", file.read(), re.MULTILINE))
  assert said == set(registry.names())


def test_a_wrong_command_line_is_refused(capsys):
  for wrong, text in ((["latency"], "there is no benchmark latency"),
                      (["latency_S", "--rounds=0"], "must be at least 1")):
    with pytest.raises(SystemExit):
      parse(wrong)
    assert text in capsys.readouterr().err
