"""A cluster for tests of replication: a ps and some workers, each with two CPU devices."""
from __future__ import annotations

import contextlib
import itertools
import runpy
import sys
import threading

import tensorflow.compat.v1 as tf

from tests import harness
from tests.cluster_tasks import say, stay
from tf1ps.cluster.description import Task
from tf1ps.cluster.gpus import NO_GPU
from tf1ps.replication import clones

WORKERS = ["/job:worker/task:%d" % i for i in range(3)]

_numbers = itertools.count()


def serve(jobs, job, index, has_gpu=False):
  """A server with two CPU devices, and with two parts of a GPU if it has one."""
  config = clones.with_cpu_devices(2)
  if has_gpu:
    config.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[1024.0, 1024.0])
  tf.train.Server(tf.train.ClusterSpec(jobs), job, index, config=config)
  say("up")
  stay()


def run_page(path, role):
  """The program of a page, in one of its roles."""
  sys.argv = [path, role]
  runpy.run_path(path, run_name="__main__")


class Nodes(object):
  """The cluster.

  Attributes:
    workers: the workers' tasks.
    servers: the workers' processes.
  """

  def __init__(self, forks, num_ps, num_workers, gpu=None):
    """Starts the processes; worker 0 has this GPU, as CUDA_VISIBLE_DEVICES names it, if any."""
    addresses = harness.addresses(num_ps + num_workers)
    self.jobs = {"worker": addresses[num_ps:]}
    if num_ps:
      self.jobs["ps"] = addresses[:num_ps]
    self.workers = [Task("worker", i, address) for i, address in enumerate(self.jobs["worker"])]
    self._forks, self._of_thread = forks, threading.local()
    self.all = []
    for job, tasks in sorted(self.jobs.items()):
      for i in range(len(tasks)):
        own = gpu if (job, i) == ("worker", 0) else None
        self.all.append(forks.start("%s %d" % (job, i), serve, self.jobs, job, i, own is not None,
                                    CUDA_VISIBLE_DEVICES=own or NO_GPU))
    self.servers = self.all[num_ps:]
    for server in self.all:
      server.wait_for("up")

  def start_again(self, index):
    """Starts the process of a worker again, which was killed."""
    again = self._forks.start("worker %d again" % index, serve, self.jobs, "worker", index)
    self.all.append(again)
    again.wait_for("up")

  def together(self, function, count):
    """Calls function(index) in a thread for each worker, until one fails; returns the results."""
    results, errors = [None] * count, []
    container = "together%d" % next(_numbers)

    def call(index):
      self._of_thread.container = container
      try:
        results[index] = function(index)
      except BaseException as error:
        errors.append(error)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
      thread.start()
    harness.wait_until(lambda: errors or not any(thread.is_alive() for thread in threads))
    if errors:
      raise errors[0]
    return results

  @contextlib.contextmanager
  def graph(self, container=None):
    """A new default graph, with its state in this container.

    None: one of its own, or of all functions that `together` calls.
    """
    container = (container or getattr(self._of_thread, "container", None)
                 or "graph%d" % next(_numbers))
    with tf.Graph().as_default() as graph, graph.container(container):
      yield graph

  def target(self, index):
    return "grpc://" + self.workers[index].address

  def config(self, *filters):
    return tf.ConfigProto(device_filters=list(filters))

  def session(self, index=0, count=3):
    """A session of the default graph on a worker, which sees the ps and so many workers."""
    return tf.Session(self.target(index), config=self.config("/job:ps", *WORKERS[:count]))

  def close(self):
    for server in self.all:
      server.kill()


@contextlib.contextmanager
def started(forks, num_ps=1, num_workers=3, gpu=None):
  nodes = Nodes(forks, num_ps, num_workers, gpu)
  try:
    yield nodes
  finally:
    nodes.close()
