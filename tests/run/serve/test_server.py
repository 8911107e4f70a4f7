"""A server answers like the model, and every fault is a JSON error."""

import concurrent.futures
import contextlib
import gzip
import json
import re
import signal
import socket
import subprocess
import sys
import time

from hypothesis import given, strategies as st
import pytest

from tests.run.serve.conftest import Client, SlowService, serving
import xjax
from xjax.core.errors import ConfigError, DataError
from xjax.run.serve.server import Limits, bind

FIELDS = 'documents text zones id labels k threshold explain'.split()
TEXTS = ['a cat and a dog', 'one horse', 'nothing known']


@pytest.fixture(scope='module')
def model(linear_run):
  return xjax.load(linear_run)


@pytest.mark.parametrize('threshold', [None, 'tuned', 0.3, 0, 1])
def test_answers_are_those_of_the_model(client, model, threshold):
  documents = [{'id': f'd{i}', 'text': t} for i, t in enumerate(TEXTS)]
  body = {'documents': documents, 'k': 6}
  if threshold is not None:
    body['threshold'] = threshold
  lines = client.lines(body)
  assert [line['id'] for line in lines] == ['d0', 'd1', 'd2']
  wanted = model.predict(TEXTS, k=6, threshold=threshold)
  assert [line['labels'] for line in lines] == [
    [label._asdict() for label in labels] for labels in wanted
  ]


def test_one_document_needs_no_list(client):
  (line,) = client.lines({'text': 'a cat', 'k': 2})
  assert [len(line['labels']), line['labels'][0]['id']] == [2, 'cat']


def test_explanations_are_those_of_the_model(client, model):
  body = {'documents': TEXTS[:1], 'k': 2, 'explain': 1}
  (labels,), (line,) = model.explain(TEXTS[:1], 2, 1), client.lines(body)
  assert [[word['word'] for word in x['why']] for x in line['labels']] == [
    [word.word for word in label.why] for label in labels
  ]
  assert labels[0].why[0].word in ('cat', 'dog')


def test_lists_may_be_shorter_than_usual(service):
  short = SlowService(service, 0.0)
  short.max_k = 3
  with serving(short) as client:
    (line,) = client.lines({'text': 'a cat'})
    assert len(line['labels']) == 3


def test_the_health_says_what_is_served(client):
  status, answer = client.json('GET', '/health')
  assert (status, answer['status'], answer['labels']) == (200, 'ok', 6)


def test_a_page_tries_texts(client):
  status, page, _ = client.send('GET', '/')
  assert status == 200 and b"fetch('predict'" in page


def test_metrics_count_requests(client):
  counted = 'xjax_requests_total{code="200",path="/predict"}'
  client.predict({'text': 'a'})
  before = client.metric(counted)
  client.predict({'text': 'a'})
  assert client.metric(counted) == before + 1


@pytest.mark.parametrize(
  ('body', 'message'),
  [
    ({'documents': []}, 'documents: must be a list of one or more'),
    ({'documents': 'a text'}, 'documents: must be a list'),
    ({'documents': [3]}, r'documents\[0\]: must be a text'),
    ({'documents': ['a', {'txt': 'b'}]}, r'documents\[1\]: no field'),
    ({'documents': ['a'], 'K': 3}, "'K' does not belong here"),
    ({'documents': [{'text': 'a', 'k': 3}]}, "'k' belongs beside"),
    ({'text': 'a', 'k': 0}, 'k: must be an integer from 1 to 50'),
    ({'text': 'a', 'k': 51}, 'k: must be an integer from 1 to 50'),
    ({'text': 'a', 'k': 2.0}, 'k: must be an integer'),
    ({'text': 'a', 'k': True}, 'k: must be an integer'),
    ({'text': 'a', 'threshold': 'best'}, "threshold='best': must be 'tuned'"),
    ({'text': 'a', 'threshold': 1.5}, 'threshold=1.5: must be'),
    ({'text': 'a', 'treshold': 0.5}, "'treshold' does not belong here"),
    ({'text': 'a', 'threshold': [1]}, 'threshold'),
    ({'text': 'a', 'explain': -1}, 'explain: must be an integer'),
    ({'text': ['a']}, 'text'),
    ({}, 'body: no field'),
    ([], 'not a JSON object'),
  ],
)
def test_a_wrong_field_is_named(client, body, message):
  status, answer = client.predict(body)
  assert status == 400
  assert list(answer) == ['error']
  with pytest.raises(AssertionError, match=message):
    raise AssertionError(answer['error'])


@pytest.mark.parametrize(
  'body', [b'', b'{', b'\xff', b'[' * 100_000, b'{"text": NaN}']
)
def test_a_body_that_is_no_json_is_an_error(client, body):
  status, text, _ = client.send('POST', '/predict', body)
  assert status == 400
  assert json.loads(text)['error'].startswith('body: ')


ONE = json.dumps({'text': 'a cat', 'k': 1}).encode()
GZIP = {'content-encoding': 'gzip'}


@pytest.mark.parametrize(
  ('body', 'headers', 'status', 'message'),
  [
    (b'\xef\xbb\xbf' + ONE, {}, 200, ''),
    (ONE, {'content-type': 'application/json; charset="UTF-8"'}, 200, ''),
    (gzip.compress(ONE, mtime=0), GZIP, 200, ''),
    (
      gzip.compress(b'\xef\xbb\xbf', mtime=0) + gzip.compress(ONE, mtime=0),
      GZIP,
      200,
      '',
    ),
    (ONE, {'content-encoding': 'identity'}, 200, ''),
    (gzip.compress(ONE, mtime=0)[:-9], GZIP, 400, 'cannot be unpacked by gzip'),
    (ONE, GZIP, 400, 'cannot be unpacked by gzip'),
    (gzip.compress(ONE, mtime=0), {}, 400, 'say Content-Encoding: gzip'),
    (gzip.compress(b' ' * (1 << 26), mtime=0), GZIP, 413, 'longer than 1 MiB'),
    (ONE, {'content-encoding': 'br'}, 415, "'br': send the body plain or gz"),
    (ONE.decode().encode('utf-16'), {}, 400, 'is utf-16; send JSON in UTF-8'),
    (ONE.decode().encode('utf-16-be'), {}, 400, 'is utf-16-be; send JSON in'),
    (ONE.decode().encode('utf-32'), {}, 400, 'is utf-32; send JSON in UTF-8'),
    (
      '{"text": "Straße"}'.encode('cp1252'),
      {},
      400,
      'not UTF-8: inv.* byte 15',
    ),
    (
      ONE,
      {'content-type': 'text/plain; charset=GBK'},
      415,
      'GBK: send JSON in',
    ),
  ],
)
def test_bodies_are_utf_8_plain_or_gzipped(
  service, body, headers, status, message
):
  with serving(service, Limits(body=1 << 20)) as client:
    got, text, _ = client.send('POST', '/predict', body, headers=headers)
    answer = json.loads(text)
    assert got == status
    if status == 200:
      assert answer['predictions'] == client.lines(json.loads(ONE))
    else:
      assert re.search(message, answer['error'])


@pytest.mark.parametrize('text', ['', ' \t\n', None, '\u3000'])
def test_a_document_without_words_is_answered(client, text, model):
  expected = [label.id for label in model.predict([text or ''], k=3)[0]]
  for body in {'text': text}, {'documents': [text, {'text': text}, 'a']}:
    lines = client.lines({**body, 'k': 3})
    assert len(lines) == len(body.get('documents', 'a'))
    assert [label['id'] for label in lines[0]['labels']] == expected
    assert lines[:2][-1]['labels'] == lines[0]['labels']


def test_unknown_paths_and_methods_are_json_errors(client):
  assert client.json('GET', '/nothing')[0] == 404
  status, answer = client.json('PUT', '/predict')
  assert status == 405
  assert 'POST /predict' in answer['error']


def test_too_many_documents_are_refused(service):
  with serving(service, Limits(documents=3)) as client:
    status, answer = client.predict({'documents': ['a'] * 4})
    assert (status, 'at most 3' in answer['error']) == (413, True)
    assert client.predict({'documents': ['a'] * 3})[0] == 200


def test_a_long_body_is_refused_after_it_was_sent(service):
  with serving(service, Limits(body=1 << 20)) as client:
    status, answer = client.predict({'text': 'a' * (8 << 20)})
    assert (status, 'longer than 1 MiB' in answer['error']) == (413, True)
    assert client.predict({'text': 'a' * 1000})[0] == 200


def test_too_many_connections_are_refused(service):
  with serving(service, Limits(connections=3)) as client:
    with contextlib.ExitStack() as stack:
      for _ in range(3):
        address = '127.0.0.1', client.port
        stack.enter_context(socket.create_connection(address))
      assert client.send('GET', '/health')[0] == 503
    client.wait()  # until the server has noticed that they are closed


def test_a_page_of_another_machine_reads_no_answer(service):
  hosts = frozenset({'127.0.0.1', '::1'})
  with serving(service, Limits(hosts=hosts)) as client:
    for host, status in (('evil.example', 403), ('[::1]:80', 200)):
      headers = {'host': host}
      assert client.send('GET', '/health', headers=headers)[0] == status


def test_an_answer_that_takes_too_long_is_an_error(service):
  slow = SlowService(service, 1.0)
  with serving(slow, Limits(seconds=0.2)) as client:
    status, answer = client.predict({'text': 'a'})
    assert (status, 'no answer within' in answer['error']) == (503, True)
    slow.seconds = 0.0


def test_a_failure_says_no_more_than_that(service, caplog):
  class Failing(SlowService):
    def answer(self, questions):
      raise DataError('/secret: is damaged')

  with serving(Failing(service, 0)) as client:
    status, answer = client.predict({'text': 'a'})
    assert status == 500
    assert 'secret' in caplog.text
    assert 'secret' not in json.dumps(answer)
    assert client.json('GET', '/health')[0] == 200


def test_many_clients_share_batches(service):
  slow = SlowService(service, 0.05)
  with serving(slow) as client:
    names = 'xjax_batch_documents_sum', 'xjax_batch_documents_count'
    before = [client.metric(name) for name in names]
    body = {'documents': TEXTS, 'k': 1}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
      answers = list(pool.map(client.predict, [body] * 48))
    assert all(answer == answers[0] for answer in answers)
    documents, batches = (client.metric(name) for name in names)
    assert documents - before[0] == 48 * len(TEXTS)
    assert batches - before[1] < 24


@given(st.data())
def test_any_body_is_answered_with_json(client, data):
  values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: (
      st.lists(x, max_size=3)
      | st.dictionaries(st.sampled_from(FIELDS) | st.text(), x, max_size=4)
    ),
    max_leaves=8,
  )
  whole = st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, values))
  sent = (whole | values).map(lambda x: json.dumps(x).encode())
  body = data.draw(st.binary(max_size=200) | sent)
  status, text, headers = client.send('POST', '/predict', body)
  answer = json.loads(text)
  assert headers['content-type'] == 'application/json'
  assert status in (200, 400, 413)
  assert (status != 200) == ('error' in answer)


def test_an_address_in_use_is_an_error():
  with bind('127.0.0.1', 0) as listener:
    listener.listen()
    port = listener.getsockname()[1]
    with pytest.raises(ConfigError, match='choose another port'):
      bind('127.0.0.1', port)
  with pytest.raises(ConfigError, match='cannot listen there'):
    bind('no.such.host.invalid', 1)


@pytest.mark.thorough
def test_sigterm_answers_what_waits_and_exits_with_0(linear_run):
  command = [sys.executable, '-m', 'xjax', 'serve', '--port=0']
  process = subprocess.Popen(
    [*command, f'--workdir={linear_run}'], stderr=subprocess.PIPE, text=True
  )
  with process:
    line = next(x for x in process.stderr if x.startswith('serving on '))
    client = Client(int(line.split(':')[2].split('/')[0]))
    body = {'documents': ['a cat and a dog'] * 1000, 'k': 6}
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
      future = pool.submit(client.predict, body)
      time.sleep(0.02)
      process.send_signal(signal.SIGTERM)
      status, answer = future.result(30)
    assert status == 200
    assert len(answer['predictions']) == 1000
    rest = process.stderr.read()
    assert process.wait(30) == 0
    assert 'Traceback' not in rest
    with pytest.raises(OSError):
      client.predict(body)
