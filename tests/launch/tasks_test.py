from __future__ import annotations

import pickle
import threading

import pytest

from tests.launch import sample_tasks
from tf1ps.launch import tasks


def test_function_and_arguments_are_pickled():
  task = tasks.LocalTask("ps 0", sample_tasks.answer, (7,))
  assert pickle.loads(tasks.pickle_task(task)) == (sample_tasks.answer, (7,))
  assert task.env == {}


@pytest.mark.parametrize("task, message", [
    (tasks.LocalTask("ps 0", lambda: 0), "ps 0 cannot be sent to a process of its own: .*lambda"),
    (tasks.LocalTask("worker 1", sample_tasks.answer, (threading.Lock(),)),
     "worker 1 cannot be sent to a process of its own: .*lock"),
    (tasks.LocalTask("ps 0", sample_tasks.answer, env={"CUDA_VISIBLE_DEVICES": -1}),
     "environment of ps 0 has 'CUDA_VISIBLE_DEVICES': -1")])
def test_what_no_other_process_could_run_is_refused(task, message):
  with pytest.raises(ValueError, match=message):
    tasks.pickle_task(task)
