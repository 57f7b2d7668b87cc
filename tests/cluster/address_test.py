from __future__ import annotations

import pytest

from tf1ps.cluster import address


@pytest.mark.parametrize("text, host, port", [
    ("localhost:2222", "localhost", 2222),
    ("127.0.0.1:1", "127.0.0.1", 1),
    ("ps-0.train_jobs.svc:65535", "ps-0.train_jobs.svc", 65535),
    ("[::1]:2222", "::1", 2222),
    ("[fe80::1%eth0]:2222", "fe80::1%eth0", 2222),
])
def test_takes_apart(text, host, port):
  assert address.parse_address(text, "--ps_hosts") == (host, port)


@pytest.mark.parametrize("text, wrong, right", [
    ("localhost", "no port", '"localhost:2222"'),
    ("localhost:", "no port", '"localhost:2222"'),
    ("[::1]", "no port", '"[::1]:2222"'),
    ("[::1]2222", "no port", '"[::1]:2222"'),
    ("localhost:0", "is 0", "from 1 to 65535"),
    ("localhost:99999", "above 65535 (TensorFlow would listen on 34463)", "from 1 to 65535"),
    ("localhost:http", "is no number", "from 1 to 65535"),
    ("localhost:-1", "is no number", "from 1 to 65535"),
    ("localhost:+1", "is no number", "from 1 to 65535"),
    ("localhost:1e3", "is no number", "from 1 to 65535"),
    ("localhost:\u0661", "is no number", "from 1 to 65535"),
    ("http://localhost:2222/job", "is a URL", '"localhost:2222"'),
    ("grpc://localhost:2222", "is a URL", '"localhost:2222"'),
    ("localhost:2222/job", 'has a "/"', "host:port"),
    (" localhost:2222", "has a blank", "without blanks"),
    ("localhost:22 22", "has a blank", "without blanks"),
    ("localhost:2222\n", "has a blank", "without blanks"),
    (":2222", "no host", '"localhost:2222"'),
    ("", "is empty", "host:port"),
    ("::1", "without brackets or a port", '"[::1]:2222"'),
    ("a:1;b:2", 'more than one ":"', "commas"),
    ("[localhost]:2222", "no IPv6 address", '"[::1]:2222"'),
    ("[::1:2222", "no IPv6 address", '"[::1]:2222"'),
    (2222, "is no text", "host:port"),
    (None, "is no text", "host:port"),
])
def test_refuses(text, wrong, right):
  with pytest.raises(address.ClusterError) as error:
    address.parse_address(text, "TF_CONFIG cluster.ps[0]")
  message = str(error.value)
  assert message.startswith("TF_CONFIG cluster.ps[0]: ")
  assert wrong in message and right in message
  assert str(text).strip() in message


def test_zero_where_the_system_may_choose():
  assert address.parse_address("localhost:0", "here", allow_zero=True).port == 0


def test_is_a_value_error():
  assert issubclass(address.ClusterError, ValueError)
