from __future__ import annotations

import json

from tf1ps.pipeline import ranges

E = ranges.EPOCH


def claims_of(state, owner, count, **kwargs):
  return [state.claim(owner, **kwargs) for _ in range(count)]


def test_each_range_is_handed_out_once_an_epoch():
  state = ranges.Ranges.new("", 3, 2)
  assert claims_of(state, 0, 2) == [0, 1]
  assert claims_of(state, 1, 5) == [2, E, E + 1, E + 2, None]
  assert not state.has_more and not state.are_done
  state.done(0, [0, 1])
  state.done(1, [2, E, E + 1])
  assert not state.are_done
  state.done(1, [E + 2])
  assert state.are_done


def test_without_a_number_of_epochs_there_is_no_end():
  state = ranges.Ranges.new("", 2, None)
  assert claims_of(state, 0, 5) == [0, 1, E, E + 1, 2 * E]


def test_an_epoch_alone():
  state = ranges.Ranges.new("", 2, 2)
  assert claims_of(state, 0, 3, epoch=0) == [0, 1, None]
  assert state.has_more
  assert state.claim(0, epoch=1) == E


def test_what_a_worker_held_comes_back_and_is_handed_out_first():
  state = ranges.Ranges.new("", 4, 1)
  claims_of(state, 0, 2)
  assert state.claim(1) == 2
  state.done(0, [0])
  state.note_trained(0, {1: 7})
  state.note_trained(1, {1: 100})  # not its
  assert state.owners == {0, 1}
  assert state.give_back(0) == [1]
  assert state.again == 7
  assert claims_of(state, 1, 3) == [1, 3, None]
  state.done(0, [1])  # it is another worker's now
  assert not state.are_done
  state.done(1, [1, 2, 3])
  assert state.are_done


def test_what_a_worker_still_holds_does_not_come_back():
  state = ranges.Ranges.new("", 4, 1)
  claims_of(state, 0, 3)
  assert state.give_back(0, held=[0, 2]) == [1]
  assert state.claim(1) == 1


def test_no_data_are_done_at_once():
  state = ranges.Ranges.new("", 0, None)
  assert state.claim(0) is None
  assert state.are_done


def test_the_state_is_json():
  state = ranges.Ranges.new("abc", 3, None)
  claims_of(state, 5, 2)
  state.give_back(5, held=[1])
  again = ranges.Ranges(json.loads(json.dumps(state.value)))
  assert again.value == state.value
  assert again.claim(6) == 0
