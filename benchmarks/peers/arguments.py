"""The command line that all peers share, so that one runner can start all of them."""
from __future__ import annotations

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")


def parser(description):
  """Returns the common parser, to which a peer adds its own options."""
  made = argparse.ArgumentParser(description=description)
  made.add_argument("--ps_hosts", default="", help="host:port,host:port")
  made.add_argument("--worker_hosts", default="", help="host:port,host:port")
  made.add_argument("--job_name", default="worker", help="ps or worker")
  made.add_argument("--task_index", type=int, default=0)
  made.add_argument("--model", default="S", help="see benchmarks/models.py")
  made.add_argument("--seed", type=int, default=0, help="of the order of data and initial values")
  made.add_argument("--minibatches", type=int, default=240, help="that are made; used in turn")
  made.add_argument("--steps", type=int, default=0, help="of this worker; 0: without end")
  made.add_argument("--counter", default="", help="the file in which steps are counted")
  made.add_argument("--variables", default="ref", choices=["ref", "resource"])
  made.add_argument("--optimizer", default="sgd", choices=["sgd", "momentum", "adam"])
  made.add_argument("--learning_rate", type=float, default=None)
  return made


def prepare(tf, args):
  """Chooses graph mode, a quiet log, and the kind of variables that the command line asks for."""
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  if args.variables == "resource":
    tf.enable_resource_variables()


def make_optimizer(tf, args, model):
  """The optimizer that the command line asks for."""
  if args.optimizer == "adam":
    return tf.train.AdamOptimizer(args.learning_rate or 0.001)
  if args.optimizer == "momentum":
    return tf.train.MomentumOptimizer(args.learning_rate or model.learning_rate, 0.9)
  return tf.train.GradientDescentOptimizer(args.learning_rate or model.learning_rate)
