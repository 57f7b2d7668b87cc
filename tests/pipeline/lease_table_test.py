"""The state of leases by itself, then its table on a real server."""
from __future__ import annotations

import json

import pytest

from tests import cluster_tasks, harness
from tf1ps.cluster.description import Task
from tf1ps.pipeline import lease_table
from tf1ps.state import control

E = lease_table.EPOCH


def grant_all(state, owner, count, **kwargs):
  return [state.grant(owner, **kwargs) for _ in range(count)]


def test_each_range_is_handed_out_once_an_epoch():
  state = lease_table.LeaseState.new("", 3, 2)
  assert grant_all(state, 0, 2) == [0, 1]
  assert grant_all(state, 1, 5) == [2, E, E + 1, E + 2, None]
  assert not state.has_more and not state.is_done
  state.done(0, [0, 1])
  state.done(1, [2, E, E + 1])
  assert not state.is_done
  state.done(1, [E + 2])
  assert state.is_done


def test_without_a_number_of_epochs_there_is_no_end():
  state = lease_table.LeaseState.new("", 2, None)
  assert grant_all(state, 0, 5) == [0, 1, E, E + 1, 2 * E]


def test_an_epoch_alone():
  state = lease_table.LeaseState.new("", 2, 2)
  assert grant_all(state, 0, 3, epoch=0) == [0, 1, None]
  assert state.has_more
  assert state.grant(0, epoch=1) == E


def test_returned_leases_are_granted_first():
  state = lease_table.LeaseState.new("", 4, 1)
  grant_all(state, 0, 2)
  assert state.grant(1) == 2
  state.done(0, [0])
  state.note_trained(0, {1: 7})
  state.note_trained(1, {1: 100})  # not its
  assert state.owners == {0, 1}
  assert state.return_leases(0) == [1]
  assert state.repeated_examples == 7
  assert grant_all(state, 1, 3) == [1, 3, None]
  state.done(0, [1])  # it is another worker's now
  assert not state.is_done
  state.done(1, [1, 2, 3])
  assert state.is_done


def test_a_worker_keeps_the_leases_that_it_holds():
  state = lease_table.LeaseState.new("", 4, 1)
  grant_all(state, 0, 3)
  assert state.return_leases(0, held=[0, 2]) == [1]
  assert state.grant(1) == 1


def test_a_worker_gets_no_lease_of_a_range_that_it_still_reads():
  state = lease_table.LeaseState.new("", 2, 1)
  assert state.grant(0) == 0
  assert state.return_leases(0) == [0]  # it was taken for lost
  assert grant_all(state, 0, 2, held=[0]) == [1, None]
  assert state.grant(1) == 0


def test_no_data_is_done_at_once():
  state = lease_table.LeaseState.new("", 0, None)
  assert state.grant(0) is None
  assert state.is_done


def test_the_state_is_json():
  state = lease_table.LeaseState.new("abc", 3, None)
  grant_all(state, 5, 2)
  state.return_leases(5, held=[1])
  again = lease_table.LeaseState(json.loads(json.dumps(state.value)))
  assert again.value == state.value
  assert again.grant(6) == 0


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
    made.append(lease_table.LeaseTable(table, container, digest, epochs))
    return made[-1]

  yield one
  for each in made:
    each.close()


def test_a_worker_joins_the_era_that_the_chief_began(make):
  chief, worker = make("a"), make("a")
  chief.begin(3, records=25)
  worker.attach()
  assert worker.records == 25
  assert [table.change(lambda state: state.grant(0)) for table in (chief, worker)] == [0, 1]
  assert worker.change(lambda state: state.value["out"]) == {"0": [0, 0], "1": [0, 0]}


def test_a_session_of_an_earlier_era_cannot_change_the_table(make):
  chief, worker = make("b"), make("b")
  chief.begin(3)
  worker.attach()
  chief.begin(3)
  with pytest.raises(lease_table.StaleSessionError):
    worker.change(lambda state: state.grant(0))
  worker.attach()
  assert worker.change(lambda state: state.grant(0)) == 0


def test_workers_with_other_data_are_refused(make):
  chief, worker = make("c"), make("c", digest="xyz")
  with pytest.raises(control.ControlError, match="the chief has not written the table"):
    worker.attach()
  chief.begin(3)
  with pytest.raises(lease_table.DifferentDataError, match=r"\(abc\) than this worker has \(xyz\)"):
    worker.attach()


def test_a_saved_table_goes_on_and_returns_the_leases_of_its_workers(make):
  chief = make("d")
  chief.begin(4)
  chief.change(lambda state: [state.grant(owner) for owner in (0, 1, 0)])
  chief.change(lambda state: (state.done(0, [0]), state.note_trained(1, {1: 5})))
  saved = chief.to_json()
  assert json.loads(saved)["out"] == {"1": [1, 5], "2": [0, 0]}
  again = make("d", epochs=1)
  again.begin(4, saved=saved)
  assert again.change(lambda state: [state.grant(0) for _ in range(4)]) == [1, 2, 3, None]
  assert again.change(lambda state: state.repeated_examples) == 5


def test_a_saved_table_of_other_data_is_not_used(make, caplog):
  chief = make("e")
  chief.begin(4)
  chief.change(lambda state: state.grant(0))
  saved = chief.to_json()
  chief.begin(5, saved=saved)
  assert chief.change(lambda state: state.grant(0)) == 0
  assert "The epochs start from the beginning." in caplog.text


@pytest.mark.any_tensorflow
@pytest.mark.parametrize("wrong", [{"back": ["x"]}, {"back": 1}, {"out": {"x": [0, 1]}},
                                   {"out": {"1": [0]}}, {"next": "1"}])
def test_a_state_of_the_wrong_types_is_refused(wrong):
  value = dict(lease_table.LeaseState.new("", 3, 2).value, out={"1": [0, 5]}, back=[2])
  assert lease_table.LeaseState.check(json.dumps(value)) == json.dumps(value)
  with pytest.raises((ValueError, TypeError)):
    lease_table.LeaseState.check(json.dumps(dict(value, **wrong)))
