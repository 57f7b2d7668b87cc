"""What the tests of servers run as processes: servers of ours, and what they say."""
from __future__ import annotations

import json
import resource
import signal
import sys
import threading

import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.cluster_tasks import say, stay
from tf1ps.cluster import server as server_lib
from tf1ps.compat.timing import TIMING
from tf1ps.state import ending


def join(jobs, job, index, options, linger=TIMING.linger, client_works=TIMING.client_works):
  """Joins a server; returns 1 where its job is lost."""
  ending.TIMING = TIMING._replace(linger=linger, client_works=client_works)
  server = tf1ps.Server(jobs, job, index, **options)
  stock = signal.getsignal(signal.SIGINT)

  def tell():
    harness.wait_until(lambda: signal.getsignal(signal.SIGINT) is not stock)
    say("joins", repr(server.end_reason))

  threading.Thread(target=tell, daemon=True).start()
  try:
    server.join(exit=False)
  except server_lib.JobLostError as error:
    say("lost:", error)
    return 1
  finally:
    assert signal.getsignal(signal.SIGINT) is stock
  say("ended:", server.end_reason)
  return 0


def use(target, task):
  """Has a session of TensorFlow's own on a server of another process, until it is ended."""
  config = tf.ConfigProto(device_filters=[task])
  with tf.Graph().as_default(), tf.Session(target, config=config) as session:
    say("got", session.run(tf.constant(7)))
    stay()


def fall_through(jobs):
  """The program of a ps without `return` after join."""
  ending.TIMING = TIMING._replace(linger=0.0)
  server = tf1ps.Server(jobs, "ps", 0)
  say("up")
  server.join()
  say("fell through")


def join_in_a_thread(jobs):
  """Joins in another thread than the main one, which hears the signals."""
  server = tf1ps.Server(jobs, "ps", 0)
  thread = threading.Thread(target=server.join, daemon=True)
  thread.start()
  try:
    say("up")
    stay()
  except KeyboardInterrupt:
    say("main interrupted, joined:", thread.is_alive())


def join_stock(jobs):
  """Joins a stock server."""
  _say_when_in_stocks_join()
  tf.train.Server(jobs, "ps", 0).join()


def join_without_waiter(jobs):
  """Joins a server of ours where nobody has registered how a job ends."""
  server_lib._end_waiter = None
  _say_when_in_stocks_join()
  server_lib.Server(jobs, "ps", 0).join()


def _say_when_in_stocks_join():
  """Says "up" when the main thread has come to where TensorFlow joins."""
  main = threading.main_thread().ident

  def is_there():
    code = sys._current_frames()[main].f_code
    return code.co_name == "join" and "tensorflow" in code.co_filename

  threading.Thread(target=lambda: harness.wait_until(is_there) and say("up"), daemon=True).start()


def hold_port(address):
  """Starts a stock server that has the port."""
  tf.train.Server({"other": [address]})
  say("up")
  stay()


def try_port(address, start):
  """Tries to start a server on a port that somebody has."""
  try:
    tf1ps.Server({"ps": [address]}, "ps", 0, start=start)
  except server_lib.PortTakenError as error:
    say(error)
  return 0


def describe(how, jobs, job, index, options):
  """Makes a server in one of the ways that stock allows; says what is known of it."""
  spec = tf.train.ClusterSpec({name: {int(i): a for i, a in tasks.items()}
                               for name, tasks in jobs.items()})
  if how == "dict":
    server = tf1ps.Server(jobs, job, index, **options)
  elif how == "spec":
    server = tf1ps.Server(spec, job, index, **options)
  elif how == "cluster_def":
    server = tf1ps.Server(spec.as_cluster_def(), job, index, **options)
  elif how == "server_def":
    server = tf1ps.Server(tf.train.ServerDef(
        cluster=spec.as_cluster_def(), job_name=job, task_index=index, protocol="grpc"), **options)
  elif how == "local":
    server = tf1ps.Server.create_local_server()
  record = server_lib.record_of(server.target)
  assert record.target == server.target and isinstance(server, tf.train.Server)
  assert server_lib.record_of("grpc://127.0.0.1:1") is None
  config = tf.ConfigProto(device_filters=[record.cluster.task.name])
  with tf.Graph().as_default(), tf.Session(server.target, config=config) as session:
    assert session.run(tf.constant(7)) == 7
  record = record._replace(config=record.config and record.config.inter_op_parallelism_threads)
  say(json.dumps([record.cluster.to_json(), record.cluster.task.name, record.cluster.job_workers]
                 + list(record[2:])))


def start_later(address):
  """Makes a server that is started afterwards."""
  server = tf1ps.Server({"local": [address]}, start=False)
  server.start()
  with tf.Graph().as_default(), tf.Session(server.target) as session:
    say("answers", session.run(tf.constant(7)))


def serve_with_few_files(jobs, count):
  """A ps whose process may open so many files at first."""
  hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
  resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
  tf1ps.Server(jobs, "ps", 0)
  say("up")
  stay()


def read_a_record_that_is_no_text(addresses):
  """Reads one record behind it and then the end; on TensorFlow 1.15 the process may not survive."""
  server = tf1ps.Server({"ps": addresses}, "ps", 0)
  with tf.Graph().as_default():
    records = tf.data.Dataset.from_tensor_slices([b"\x0a\xff", b""]).map(
      lambda record: tf.io.parse_single_example(record, {"x": tf.FixedLenFeature([], tf.int64, 7)}))
    value = tf.data.make_one_shot_iterator(
      records.apply(tf.data.experimental.ignore_errors())).get_next()
    with tf.Session(server.target) as session:
      say(session.run(value)["x"] == 7)
      try:
        session.run(value)
      except tf.errors.OutOfRangeError:
        say("the end")
