from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import session_config as config_lib


def test_sets_every_field():
  config = config_lib.make_session_config(
      gpu_memory_fraction=0.5, gpu_growth=True, inter_op_parallelism_threads=3,
      intra_op_parallelism_threads=2,
      soft_placement=False, log_device_placement=True, operation_timeout_secs=1.5,
      device_filters=["/job:ps/task:0"])
  assert config == tf.ConfigProto(
      gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=0.5, allow_growth=True),
      inter_op_parallelism_threads=3, intra_op_parallelism_threads=2, log_device_placement=True,
      operation_timeout_in_ms=1500, device_filters=["/job:ps/task:0"])


def test_places_softly_unless_told():
  assert config_lib.make_session_config() == tf.ConfigProto(allow_soft_placement=True)


def test_what_the_base_says_stays():
  base = tf.ConfigProto(
      allow_soft_placement=False, log_device_placement=True, inter_op_parallelism_threads=5,
      operation_timeout_in_ms=7, device_filters=["/job:ps"], isolate_session_state=True)
  config = config_lib.make_session_config(base=base)
  assert config == base
  assert config is not base


def test_an_argument_overrides_the_base_and_leaves_it_alone():
  base = tf.ConfigProto(log_device_placement=True, inter_op_parallelism_threads=5,
                        device_filters=["/job:ps"], isolate_session_state=True)
  before = base.SerializeToString()
  config = config_lib.make_session_config(
      inter_op_parallelism_threads=2, log_device_placement=False, soft_placement=True,
      device_filters=[],
      gpu_growth=False, base=base)
  assert config == tf.ConfigProto(
      inter_op_parallelism_threads=2, allow_soft_placement=True, isolate_session_state=True,
      gpu_options=tf.GPUOptions())
  assert base.SerializeToString() == before


@pytest.mark.parametrize("kwargs, message", [
    ({"gpu_memory_fraction": 0}, "gpu_memory_fraction is 0: it must be above 0 and at most 1"),
    ({"gpu_memory_fraction": 1.1}, "gpu_memory_fraction is 1.1: it must be above 0 and at most 1"),
    ({"inter_op_parallelism_threads": 0}, "inter_op_parallelism_threads is 0: it must be at least "
                                          "1"),
    ({"inter_op_parallelism_threads": -1}, "inter_op_parallelism_threads is -1: it must be at "
                                           "least 1"),
    ({"intra_op_parallelism_threads": 0}, "intra_op_parallelism_threads is 0: it must be at least "
                                          "1"),
    ({"operation_timeout_secs": 0}, "operation_timeout_secs is 0: it must be above 0"),
    ({"operation_timeout_secs": float("nan")}, "operation_timeout_secs is nan: it must be above 0"),
    ({"base": tf.ConfigProto(inter_op_parallelism_threads=-1)},
     "inter_op_parallelism_threads is -1 in the given config, which ends the process of a server: "
     "it must be at least 1, or 0 for TensorFlow's choice"),
])
def test_refuses(kwargs, message):
  with pytest.raises(ValueError) as error:
    config_lib.make_session_config(**kwargs)
  assert str(error.value) == message


def test_an_argument_replaces_the_bad_value_of_a_base():
  base = tf.ConfigProto(inter_op_parallelism_threads=-1)
  config = config_lib.make_session_config(inter_op_parallelism_threads=1, base=base)
  assert config.inter_op_parallelism_threads == 1


def test_keepalive():
  assert config_lib.keepalive_environment(environ={}) == {
      "TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=10000,grpc.keepalive_timeout_ms=5000"}
  assert config_lib.keepalive_environment(1.5, 0.25, {}) == {
      "TF_GRPC_DEFAULT_OPTIONS": "grpc.keepalive_time_ms=1500,grpc.keepalive_timeout_ms=250"}


def test_keepalive_leaves_what_the_user_set(monkeypatch):
  assert config_lib.keepalive_environment(environ={"TF_GRPC_DEFAULT_OPTIONS": ""}) == {}
  monkeypatch.setenv("TF_GRPC_DEFAULT_OPTIONS", "grpc.max_receive_message_length=1")
  assert config_lib.keepalive_environment() == {}


@pytest.mark.parametrize("kwargs, name", [
    ({"seconds": 0}, "seconds"), ({"timeout": -1}, "timeout")])
def test_keepalive_refuses(kwargs, name):
  with pytest.raises(ValueError, match=f"^{name} is .*: it must be above 0"):
    config_lib.keepalive_environment(environ={}, **kwargs)


@pytest.mark.parametrize("visible, value", [
    ([0, 2], "0,2"), (["GPU-1a"], "GPU-1a"), ("0,1", "0,1"), ([], "-1"), ("", "-1"), (None, "-1")])
def test_visible_gpus(visible, value):
  assert config_lib.gpu_environment(visible) == {"CUDA_VISIBLE_DEVICES": value}


def test_hide_gpus():
  environ = {"CUDA_VISIBLE_DEVICES": "0", "HOME": "/"}
  config_lib.hide_gpus(environ)
  assert environ == {"CUDA_VISIBLE_DEVICES": "-1", "HOME": "/"}
