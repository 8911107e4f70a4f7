"""Slow, idle, stalled and foreign connections keep nobody from the server."""

import contextlib
import json
import socket
import time

import pytest

from tests.run.serve.conftest import Client, serving
from xjax.run.serve.limits import Limits, allowed_hosts


def raw(client: Client, data: bytes) -> bytes:
  """Sends bytes, and reads until the server closes the connection."""
  with socket.create_connection(('127.0.0.1', client.port), 20) as connection:
    connection.sendall(data)
    return b''.join(iter(lambda: connection.recv(1 << 16), b''))


def test_slow_clients_get_an_error_and_are_closed(service):
  with serving(service, Limits(seconds=0.3)) as client:
    head = b'POST /predict HTTP/1.1\r\nhost: localhost\r\n'
    for data in (
      b'',  # nothing is sent
      head,  # the head never ends
      head + b'content-length: 9\r\nconnection: close\r\n\r\n{"te',
    ):
      answer = raw(client, data)
      assert answer.startswith(b'HTTP/1.1 408 ')
      assert b'did not arrive within 0.3 s' in answer.split(b'\r\n\r\n', 1)[1]
    assert client.predict({'text': 'a'})[0] == 200


@pytest.mark.parametrize(
  'head', [b'POST /labels', b'POST /nothing', b'POST /predict']
)
def test_a_body_that_does_not_end_after_an_early_answer(service, caplog, head):
  limits = Limits(seconds=0.3, hosts=frozenset({'localhost', '127.0.0.1'}))
  host = b'evil' if b'predict' in head else b'localhost'
  head += b' HTTP/1.1\r\nhost: ' + host + b'\r\n'
  with serving(service, limits) as client:
    for framing, body in (
      (b'content-length: 9', b'x'),
      (b'transfer-encoding: chunked', b'no chunk\r\n'),
    ):
      address = '127.0.0.1', client.port
      with socket.create_connection(address, 20) as connection:
        connection.sendall(head + framing + b'\r\n\r\n')
        answer = b''
        while not answer.endswith(b'}'):
          answer += connection.recv(1 << 16)
        assert answer.startswith(b'HTTP/1.1 4')
        connection.sendall(body)
        assert not connection.recv(1 << 16)  # closed, without another answer
  assert not caplog.records


def test_what_is_no_http_is_a_json_error(client):
  answer = raw(client, b'HELLO\r\n\r\n')
  assert answer.startswith(b'HTTP/1.1 400 ')
  assert json.loads(answer.split(b'\r\n\r\n', 1)[1]) == {
    'error': 'Invalid HTTP request received.'
  }


def test_too_many_connections_are_refused(service):
  with serving(service, Limits(connections=3)) as client:
    with contextlib.ExitStack() as stack:
      for _ in range(3):
        address = '127.0.0.1', client.port
        stack.enter_context(socket.create_connection(address))
      time.sleep(0.1)
      status, answer = client.predict({'text': 'a'})
      assert (status, 'too many' in answer['error']) == (503, True)
    while client.predict({'text': 'a'})[0] != 200:
      time.sleep(0.05)  # until the server has noticed that they are closed


def test_a_client_that_reads_no_answer_is_closed(service):
  with serving(service, Limits(seconds=1.0)) as client:
    asked = b'GET / HTTP/1.1\r\nhost: localhost\r\n\r\n'
    parts = []
    with socket.create_connection(('127.0.0.1', client.port)) as connection:
      with contextlib.suppress(ConnectionError):
        # The answers are more than the buffers of sockets hold.
        connection.sendall(asked * 3000)
        time.sleep(4)
        connection.settimeout(15)
        while part := connection.recv(1 << 20):
          parts.append(part)
    assert b''.join(parts).count(b'HTTP/1.1 200') < 3000
    assert client.predict({'text': 'a'})[0] == 200


def test_an_idle_connection_makes_room_for_another(service):
  with serving(service, Limits(connections=3)) as client:
    with contextlib.ExitStack() as stack:
      for _ in range(3):
        kept = stack.enter_context(contextlib.closing(client.connection()))
        kept.request('GET', '/health')
        kept.getresponse().read()
      assert client.predict({'text': 'a'})[0] == 200


def test_a_page_of_another_machine_reads_no_answer(service):
  hosts = frozenset({'localhost', '127.0.0.1'})
  with serving(service, Limits(hosts=hosts)) as client:
    for host, status in ((b'evil.example', 403), (b'LOCALHOST:80', 200)):
      asked = b'GET /labels HTTP/1.1\r\nconnection: close\r\nhost: %b\r\n\r\n'
      answer = raw(client, asked % host)
      assert answer.startswith(b'HTTP/1.1 %d ' % status)
  assert allowed_hosts('127.0.0.1', ['Mine']) >= {'mine', 'localhost'}
  assert not allowed_hosts('0.0.0.0', []) and not allowed_hosts('::1', ['*'])
