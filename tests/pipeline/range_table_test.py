"""The table of ranges on a real server, as a chief and a worker see it."""
from __future__ import annotations

import json

import pytest

from tests import cluster_tasks, harness
from tf1ps.cluster.view import Task
from tf1ps.pipeline import range_table
from tf1ps.pipeline.claims import StaleSessionError
from tf1ps.state import control


@pytest.fixture(scope="module")
def ps(forks):
  """A server."""
  jobs = {"ps": harness.addresses(1)}
  server = forks.start("ps", cluster_tasks.serve, jobs, "ps", 0)
  server.wait_for("up")
  yield Task("ps", 0, jobs["ps"][0])
  server.kill()


@pytest.fixture
def make(ps):
  """Makes accesses to the table of a container."""
  made = []

  def one(container, digest="abc", epochs=2):
    table = control.ControlTable("grpc://" + ps.address, ps, ps)
    made.append(range_table.RangeTable(table, container, digest, epochs))
    return made[-1]

  yield one
  for each in made:
    each.close()


def test_a_worker_takes_part_in_what_the_chief_began(make):
  chief, worker = make("a"), make("a")
  chief.begin(3, records=25)
  worker.attach()
  assert worker.records == 25
  assert [table.change(lambda ranges: ranges.claim(0)) for table in (chief, worker)] == [0, 1]
  assert worker.change(lambda ranges: ranges.value["out"]) == {"0": [0, 0], "1": [0, 0]}


def test_another_era_leaves_no_say_to_the_earlier_one(make):
  chief, worker = make("b"), make("b")
  chief.begin(3)
  worker.attach()
  chief.begin(3)
  with pytest.raises(StaleSessionError):
    worker.change(lambda ranges: ranges.claim(0))
  worker.attach()
  assert worker.change(lambda ranges: ranges.claim(0)) == 0


def test_workers_with_other_data_are_refused(make):
  chief, worker = make("c"), make("c", digest="xyz")
  with pytest.raises(control.ControlError, match="the chief has not written down"):
    worker.attach()
  chief.begin(3)
  with pytest.raises(range_table.DifferentDataError, match=r"\(abc\) than this worker has \(xyz\)"):
    worker.attach()


def test_what_was_saved_goes_on_and_what_was_held_is_handed_out_again(make):
  chief = make("d")
  chief.begin(4)
  chief.change(lambda ranges: [ranges.claim(owner) for owner in (0, 1, 0)])
  chief.change(lambda ranges: (ranges.done(0, [0]), ranges.note_trained(1, {1: 5})))
  saved = chief.to_json()
  assert json.loads(saved)["out"] == {"1": [1, 5], "2": [0, 0]}
  again = make("d", epochs=1)
  again.begin(4, saved=saved)
  assert again.change(lambda ranges: [ranges.claim(0) for _ in range(4)]) == [1, 2, 3, None]
  assert again.change(lambda ranges: ranges.again) == 5


def test_what_was_saved_of_other_data_is_not_used(make, caplog):
  chief = make("e")
  chief.begin(4)
  chief.change(lambda ranges: ranges.claim(0))
  saved = chief.to_json()
  chief.begin(5, saved=saved)
  assert chief.change(lambda ranges: ranges.claim(0)) == 0
  assert "have changed since the checkpoint was saved: the epochs begin anew" in caplog.text
