"""What the tests of synchronous replication run as processes: its replicas."""
from __future__ import annotations

import json
import os
import time

import numpy as np
import tensorflow.compat.v1 as tf

from tests import harness
from tests.cluster_tasks import say
from tf1ps.replication import sync_replicas_optimizer

STEPS, BATCH, IDS = 50, 6, 2
INNER = {
  "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
  "momentum": lambda: tf.train.MomentumOptimizer(0.05, momentum=0.9),
  "adam": lambda: tf.train.AdamOptimizer(0.02),
  "rmsprop": lambda: tf.train.RMSPropOptimizer(0.01),
  "adagrad": lambda: tf.train.AdagradOptimizer(0.1),
  "decay": lambda: tf.train.GradientDescentOptimizer(tf.train.exponential_decay(
    0.1, tf.train.get_global_step(), 10, 0.5)),
}


def data():
  """Ids [steps, batch, ids] and targets [steps, batch], the same everywhere."""
  random = np.random.RandomState(7)
  return (random.randint(0, 6, [STEPS, BATCH, IDS]),
          random.uniform(-1, 1, [STEPS, BATCH]).astype(np.float32))


def loss_of(ids, targets, use_resource):
  """A loss with a sparse gradient (table) and dense ones (w, b, c), of the open variable scope."""
  start = np.linspace(-1, 1, 18).astype(np.float32).reshape(6, 3)
  table = tf.get_variable("table", initializer=start, use_resource=use_resource)
  w = tf.get_variable("w", initializer=start[0], use_resource=use_resource)
  b = tf.get_variable("b", initializer=np.float32([0.5]), use_resource=use_resource)
  c = tf.get_variable("c", initializer=np.float32([[0.1, 0.2], [0.3, 0.4]]),
                      use_resource=use_resource)
  rows = tf.reduce_sum(tf.gather(table, ids), axis=1)
  line = tf.reduce_sum(rows * w, axis=1) + b * tf.reduce_sum(c) + c[0, 1]
  return tf.reduce_mean(tf.square(line - targets))


def _connected(jobs, index, server=tf.train.Server):
  return server(tf.train.ClusterSpec(jobs), job_name="worker", task_index=index)


def _config(index):
  return tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % index])


def _setter(jobs, index):
  return tf.device(tf.train.replica_device_setter(
    cluster=tf.train.ClusterSpec(jobs), worker_device="/job:worker/task:%d" % index))


def train_equally(jobs, index, cases, control_flow_v2):
  """Trains with some replicas on equal parts of each batch; replica 0 says the variables.

  Args:
    jobs: the cluster.
    index: of this worker.
    cases: tuples of replicas, whether with resource variables, and names of inner optimizers.
    control_flow_v2: whether the script does not turn TensorFlow 2's control flow off.
  """
  if not control_flow_v2:
    tf.disable_v2_behavior()
  server = _connected(jobs, index)
  for replicas, use_resource, names in cases:
    if index < replicas:
      _train_equally(jobs, index, server, replicas, use_resource, names)
  say("done")


def _train_equally(jobs, index, server, replicas, use_resource, names):
  ids, targets = data()
  part = slice(index * BATCH // replicas, (index + 1) * BATCH // replicas)
  with tf.Graph().as_default() as graph, _setter(jobs, index), \
      tf.variable_scope("%d_%d" % (replicas, use_resource)):
    fed = tf.placeholder(tf.int32, [None, IDS]), tf.placeholder(tf.float32, [None])
    step = tf.get_variable("step", initializer=np.int64(0), trainable=False,
                           use_resource=use_resource)
    tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, step)
    optimizers, train, found = [], [], {}
    for name in names:  # several models in one job
      with tf.variable_scope(name):
        counter = step if name == names[0] else tf.get_variable(
          "count", initializer=np.int64(0), trainable=False, use_resource=use_resource)
        loss = loss_of(*fed, use_resource=use_resource)
        variables = tf.trainable_variables(tf.get_variable_scope().name + "/")
        extra, averages = {}, None
        if name == "momentum":
          averages = tf.train.ExponentialMovingAverage(0.9)
          extra = dict(variable_averages=averages, variables_to_average=variables)
        if name == "adagrad":
          extra = dict(clip_norm=0.5)
        # What the ps of w and c have to send goes as one, but for one optimizer.
        optimizers.append(sync_replicas_optimizer.SyncReplicasOptimizer(
          INNER[name](), replicas, replica_index=index,
          pack_bytes=0 if name == "adagrad" else 65536, **extra))
        train.append(optimizers[-1].minimize(loss, counter, variables))
        found[name] = variables + ([averages.average(v) for v in variables] if averages else [])
    init, missing = tf.global_variables_initializer(), optimizers[0].ready_for_local_init_op
  with tf.Session(server.target, graph, _config(index)) as session:
    if index == 0:
      session.run(init)
    harness.wait_until(lambda: not len(session.run(missing)), what="the initialisation")
    session.run([one.chief_init_op if index == 0 else one.local_step_init_op
                 for one in optimizers])
    for i in range(STEPS):
      session.run(train, dict(zip(fed, (ids[i, part], targets[i, part]))))
    if index == 0:
      say("found", json.dumps({
        "case": [replicas, use_resource], "steps": int(session.run(step)),
        "values": {name: [value.tolist() for value in session.run(variables)]
                   for name, variables in found.items()}}))


def count(jobs, index, kind, options, own_steps, gate=None, hold_at=-1):
  """A replica whose gradient is -1 in a place of its own, so that the sum of updates shows it.

  Says "made K: STEP TOTALS" after each step, then how long the close took, and how it ended. Its
  loss of step k, counted from 1, is k 4^index, so that a mean shows whose losses are in it; ours
  says "loss MEAN" with each step.

  Args:
    jobs: the cluster.
    index: of this worker.
    kind: "stock" or "ours", the optimizer's class.
    options: of the optimizer.
    own_steps: how many steps to make.
    gate: a file that it waits for before the step `hold_at`.
    hold_at: counted from 0; -1: never.
  """
  tf.disable_v2_behavior()
  server = _connected(jobs, index)
  replicas = len(jobs["worker"])
  with tf.Graph().as_default(), _setter(jobs, index):
    step = tf.train.get_or_create_global_step()
    totals = tf.get_variable("totals", [replicas], initializer=tf.zeros_initializer(),
                             use_resource=True)
    value = tf.placeholder(tf.float32, [])
    loss = tf.stop_gradient(totals[index]) - totals[index] + value
    inner = tf.train.GradientDescentOptimizer(1.0)
    options = dict(dict(replicas_to_aggregate=replicas, total_num_replicas=replicas), **options)
    if kind == "ours":
      optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
        inner, replica_index=index, **options)
    else:
      optimizer = tf.train.SyncReplicasOptimizer(inner, **options)
    train = optimizer.minimize(loss, step)
    hook = optimizer.make_session_run_hook(index == 0)
    with tf.train.MonitoredTrainingSession(
        server.target, index == 0, hooks=[hook], config=_config(index),
        stop_grace_period_secs=3 if kind == "stock" else 1000) as session:
      say("ready")
      try:
        for k in range(own_steps):
          if k == hold_at:
            say("holds")
            harness.wait_until(lambda: os.path.exists(gate), what=gate)
          fetched = [train] + ([optimizer.round_result.loss] if kind == "ours" else [])
          found = session.run(fetched, {value: (k + 1) * 4.0 ** index})
          for mean in found[1:]:
            say("loss %.17g" % mean)
          say("made %d: %s" % (k + 1, " ".join(
            "%g" % value for value in [session.run(step), *session.run(totals)])))
      finally:
        began = time.monotonic()
  say("closed after %.2f s" % (time.monotonic() - began))
  if kind == "ours":
    say("state", json.dumps(hook.state._asdict()), "was ended" if hook.was_ended else "has left")
