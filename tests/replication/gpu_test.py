"""Clones, replicas and mirrors on two parts of a GPU, beside a worker without a GPU.

Without a GPU two CPU devices take their place.
"""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import needs
from tests.replication import nodes as nodes_lib
from tests.replication import reference
from tf1ps.cluster.gpus import visible_gpus
from tf1ps.placement import device_setter
from tf1ps.replication import clones, gradients, mirrored_model, towers

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

WORKERS = nodes_lib.WORKERS


@pytest.fixture(scope="module", params=["CPU", "GPU"])
def kind(request):
  if request.param == "GPU" and not visible_gpus():
    needs.skip("a GPU")
  return request.param


@pytest.fixture(scope="module")
def nodes(forks, kind):
  """A ps, a worker whose devices are of this kind, and a worker without a GPU."""
  with nodes_lib.started(forks, 1, 2, visible_gpus()[0] if kind == "GPU" else None) as started:
    yield started


def setter(index):
  return device_setter.replica_device_setter(ps_tasks=1, worker_device=WORKERS[index])


def steps(session, train_op, loss, placeholders):
  """Trains as the reference; returns the loss of the last step, and the trained variables."""
  session.run(tf.global_variables_initializer())
  for step in range(reference.STEPS):
    _, last = session.run([train_op, loss], reference.feed(placeholders, step))
  return last, session.run({v.op.name: v for v in tf.trainable_variables()})


def check(last, trained):
  reference.check(trained, "momentum")
  np.testing.assert_allclose(last, reference.train("momentum")[1], atol=1e-5)


def test_clones_train_like_one_device(nodes, kind):
  with nodes.graph(), tf.device(setter(0)):
    ids, targets = placeholders = reference.inputs(2, None)
    update = reference.make_optimizer("momentum")
    built = clones.build_clones(lambda i: reference.model(ids[i], targets[i]),
                                clones.local_devices(2, kind), update)
    train_op = update.apply_gradients(built.grads_and_vars)
    assert [tower.loss.device[-5:] for tower in built.towers] == [kind + ":0", kind + ":1"]
    with nodes.session(0, 2) as session:
      check(*steps(session, train_op, built.loss, placeholders))


def test_replicas_on_both_devices_and_on_the_worker_without_train_like_one_device(nodes, kind):
  devices = [WORKERS[0] + device for device in clones.local_devices(2, kind)] + [WORKERS[1]]
  with nodes.graph():
    ids, targets = placeholders = reference.inputs(3, None)
    update = reference.make_optimizer("momentum")
    built = towers.build_towers(lambda i: reference.model(ids[i], targets[i]), devices, update,
                                setter(0))
    with tf.device("/job:ps/task:0"):
      reduced = gradients.reduce_gradients([tower.grads_and_vars for tower in built])
      loss = gradients.mean_loss([tower.loss for tower in built])
    train_op = update.apply_gradients(reduced)
    with nodes.session(0, 2) as session:
      check(*steps(session, train_op, loss, placeholders))


def test_mirrors_train_like_one_device(nodes, kind):
  with nodes.graph(), tf.device(WORKERS[0]):
    ids, targets = placeholders = reference.inputs(2, None)
    model = mirrored_model.build_mirrored(
      lambda i: reference.model(ids[i], targets[i]), clones.local_devices(2, kind),
      lambda: reference.make_optimizer("momentum"))
    with nodes.session(0, 2) as session:
      session.run(tf.local_variables_initializer())
      last, trained = steps(session, model.train_op, model.loss, placeholders)
      check(last, trained)
      of_both = session.run([[v for _, v in tower.grads_and_vars] for tower in model.mirrors])
      for first, second in zip(*of_both):
        np.testing.assert_array_equal(first, second)
