import dataclasses
import logging
import shutil

import jax
import numpy as np
import pytest

from tests.fixtures.first_states import first_state, params_of
from tests.fixtures.shrink import shrink
from xjax.configs import get_config
from xjax.core.errors import DataError, UserError
from xjax.data.schema import LabelSpace
from xjax.data.text.words import FIRST_WORD_ID, Vocabulary
from xjax.networks.pretrained.descriptor_encoder import DescriptorEncoder
from xjax.run.fit import fit
from xjax.train.checkpoint import read_params
from xjax.train.initial.descriptors import descriptor_word_vectors, load_words
from xjax.train.initial.warm_start import find_start, warm_start
from xjax.train.saved_steps import intact_steps
from xjax.train.workdir import Workdir


@pytest.fixture(scope='module')
def source(finished):
  """Returns the labels and the vocabulary of the run to start from."""
  workdir = Workdir.at(finished.workdir)
  return workdir.label_space(), Vocabulary.load(workdir.vocab)


def started(config, init_from, space, vocab):
  """Returns (fresh, warm, saved): parameters by path, as NumPy arrays."""
  plan, state, before = first_state(config, space, len(vocab))
  state, _ = warm_start(state, init_from, space, vocab)
  assert jax.tree.map(lambda x: x.sharding, state) == plan.shardings
  assert int(state.step) == 0
  return before, params_of(state)


def test_the_same_run_loads_everything(config, finished, source, caplog):
  caplog.set_level(logging.INFO)
  space, vocab = source
  before, after = started(config, str(finished.workdir), space, vocab)
  saved = read_params(finished.workdir / 'checkpoints', finished.best_step)
  n = space.n_trained
  for name, array in after.items():
    rows = slice(None, n) if name.startswith('head/') else slice(None)
    np.testing.assert_array_equal(array[rows], saved[name][rows])
  # Rows that only pad the labels stay fresh.
  np.testing.assert_array_equal(
    after['head/output'][n:], before['head/output'][n:]
  )
  assert f'step {finished.best_step}' in caplog.text
  assert f'loaded  head/output: {n} of {n} labels' in caplog.text
  assert 'fresh' not in caplog.text and 'skipped' not in caplog.text


def test_label_rows_by_id_and_words_by_word_of_a_named_step(
  config, finished, source
):
  space, vocab = source
  steps = intact_steps(finished.workdir / 'checkpoints')
  step = next(step for step in steps if step != finished.best_step)
  n = space.n_trained
  # Ours are theirs backwards without the first, and a new one.
  order = list(range(n - 1, 0, -1))
  labels = [space.labels[i] for i in order]
  labels.append(dataclasses.replace(space.labels[0], id='new'))
  ours = LabelSpace(
    tuple(labels), np.ones(len(labels), np.int32), space.n_train, len(labels)
  )
  words = Vocabulary(('unseen', *reversed(vocab.words)))
  named = f'{finished.workdir}@{step}'
  before, after = started(config, named, ours, words)
  saved = read_params(finished.workdir / 'checkpoints', step)
  for name in ('head/attention', 'head/output', 'head/bias'):
    np.testing.assert_array_equal(
      after[name][: n - 1], saved[name][order], err_msg=name
    )
    np.testing.assert_array_equal(after[name][n - 1 :], before[name][n - 1 :])
  table, theirs = after['embedding/table'], saved['embedding/table']
  first = FIRST_WORD_ID
  np.testing.assert_array_equal(table[:first], theirs[:first])
  np.testing.assert_array_equal(table[first], before['embedding/table'][first])
  np.testing.assert_array_equal(table[first + 1 :], theirs[first:][::-1])


def test_held_out_labels_there_are_not_taken_for_rows(config, finished, source):
  space, vocab = source
  held_out = space.labels[space.n_trained :]
  assert held_out
  ours = LabelSpace(held_out, np.ones(len(held_out), np.int32), 40, 2)
  before, after = started(config, str(finished.workdir), ours, vocab)
  np.testing.assert_array_equal(after['head/output'], before['head/output'])
  assert (after['embedding/table'] != before['embedding/table']).any()


def test_other_shapes_are_skipped_and_told(config, finished, source, caplog):
  caplog.set_level(logging.INFO)
  wider = dataclasses.replace(
    config,
    model=dataclasses.replace(
      config.model,
      encoder=dataclasses.replace(config.model.encoder, units=5, layers=2),
    ),
  )
  before, after = started(wider, str(finished.workdir), *source)
  assert 'loaded  embedding/table' in caplog.text
  assert 'skipped head/output: shape (1536, 16), not (1536, 10)' in caplog.text
  assert 'fresh   encoder/' in caplog.text
  np.testing.assert_array_equal(after['head/output'], before['head/output'])


def test_a_head_of_another_kind_starts_afresh(
  described_config, finished, caplog
):
  """Checks biases: one head has absolute ones, one adds them to an offset."""
  caplog.set_level(logging.INFO)
  config, run = described_config, finished
  workdir = Workdir.at(run.workdir)
  source = f'{run.workdir}@{run.best_step}'
  before, after = started(
    config, source, workdir.label_space(), workdir.vocabulary()
  )
  saved = read_params(workdir.checkpoints, run.best_step)
  for name, values in after.items():
    head = name.startswith('head/')
    expected = before[name] if head else saved[name]
    np.testing.assert_array_equal(values, expected, err_msg=name)
  assert 'skipped head/bias: has another meaning' in caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize('layers', [1, 2, 3])
def test_layers_by_their_number(layers, devices, tmp_path, caplog):
  caplog.set_level(logging.INFO)
  config = shrink(get_config('eurlex57k_bert'))
  with devices(1):
    run = fit(config, tmp_path / 'run')
    workdir = Workdir.at(run.workdir)
    space, vocab = workdir.label_space(), workdir.subwords()
    sizes = dataclasses.replace(workdir.architecture(), layers=layers)
    _, state, before = first_state(config, space, len(vocab), sizes)
    state, _ = warm_start(state, str(run.workdir), space, vocab)
  saved = read_params(workdir.checkpoints, run.best_step)
  for name, array in params_of(state).items():
    if name.startswith('encoder/layers/'):
      expected = np.concatenate([saved[name], before[name][2:]])[:layers]
      np.testing.assert_array_equal(array, expected)
  told = f'encoder/layers/ffn/norm/bias: {min(2, layers)} of {layers} layers'
  assert told in caplog.text


@pytest.mark.parametrize(
  ('suffix', 'says'),
  [
    ('@77', 'checkpoints/77: no such checkpoint; .*train.init_from='),
    ('/nothing', 'train.init_from=.* has no checkpoint'),
    ('@x', 'train.init_from=.* has no checkpoint'),
  ],
)
def test_what_is_not_there(finished, suffix, says):
  with pytest.raises(UserError, match=says):
    find_start(f'{finished.workdir}{suffix}')


def test_a_damaged_source(config, finished, source, tmp_path):
  folder = shutil.copytree(finished.workdir, tmp_path / 'run')
  (folder / 'labels.jsonl').write_text('{')
  space, vocab = source
  _, state, _ = first_state(config, space, len(vocab))
  with pytest.raises(DataError, match='labels.jsonl'):
    warm_start(state, str(folder), *source)


@pytest.mark.thorough
def test_rows_that_are_not_trained_stay(described_config, described, caplog):
  """Checks that the seen labels and the descriptors stay this run's own."""
  caplog.set_level(logging.INFO)
  workdir = Workdir.at(described.workdir)
  space, vocab = workdir.label_space(), workdir.vocabulary()
  # One label that was hidden there has no training documents here.
  theirs = read_params(workdir.checkpoints, described.best_step)
  hidden = np.flatnonzero(theirs['head/hidden'])
  counts = np.maximum(space.train_counts, 1)
  counts[hidden[0]] = 0
  ours = dataclasses.replace(space, train_counts=counts)
  source = f'{workdir.path}@{described.best_step}'
  before, after = started(described_config, source, ours, vocab)
  assert not np.array_equal(before['head/seen'], theirs['head/seen'])
  for name in ('seen', 'own', 'hidden', 'descriptors'):
    name = f'head/{name}'
    np.testing.assert_array_equal(after[name], before[name], err_msg=name)
    assert f'skipped {name}: not trained' in caplog.text
  for name in ('head/output_kernel', 'embedding/table'):
    np.testing.assert_array_equal(after[name], theirs[name], err_msg=name)


@pytest.mark.parametrize(
  'kind', ['finished', pytest.param('described', marks=pytest.mark.thorough)]
)
def test_descriptors_are_of_the_words_that_were_loaded(
  described_config, kind, request, tmp_path
):
  """Checks held-out labels too, with either head in the other run."""
  other = request.getfixturevalue(kind)
  source = f'{other.workdir}@{other.best_step}'
  train = dataclasses.replace(described_config.train, steps=1, init_from=source)
  run = fit(
    dataclasses.replace(described_config, seed=5, train=train), tmp_path / 'run'
  )
  workdir = Workdir.at(run.workdir)
  space, vocab = workdir.label_space(), workdir.vocabulary()
  there = Workdir.at(other.workdir).vocabulary()
  table, theirs = (
    read_params(x.workdir / 'checkpoints', step)['embedding/table']
    for x, step in ((run, 1), (other, other.best_step))
  )
  for word, row in there.index.items():
    np.testing.assert_array_equal(table[vocab.index[word]], theirs[row])
  words = load_words(workdir.word_vectors, vocab)
  np.testing.assert_array_equal(words.vectors, table)
  labels = space.labels[: space.n_trained + space.n_held_out]
  descriptor = described_config.model.head.descriptor
  encoder = DescriptorEncoder.of(labels, descriptor, vocab, words)
  found = read_params(workdir.checkpoints, 1)['head/descriptors']
  np.testing.assert_array_equal(found[: len(labels)], encoder.encode(labels))


@pytest.mark.thorough
def test_words_that_were_trained_since_describe_no_labels(
  described_config, tmp_path
):
  """Checks descriptors of the vectors that the other run began with."""
  embedding = dataclasses.replace(
    described_config.model.embedding, frozen=False
  )
  model = dataclasses.replace(described_config.model, embedding=embedding)
  config = dataclasses.replace(
    described_config,
    model=model,
    train=dataclasses.replace(
      described_config.train, steps=1, judge_every=1, learning_rate=0.1
    ),
  )
  source = fit(config, tmp_path / 'source')
  space = source.corpus.label_space
  there = Workdir.at(source.workdir)
  vocab = there.vocabulary()
  begun = load_words(there.word_vectors, vocab)
  ended = read_params(there.checkpoints, 1)
  assert np.abs(ended['embedding/table'] - begun.vectors).max() > 0.05
  # Our words are theirs backwards, and a new one.
  ours = Vocabulary(('unseen', *reversed(vocab.words)))
  _, state, before = first_state(config, space, len(ours))
  own = before['embedding/table']
  state, taken = warm_start(state, str(source.workdir), space, ours)
  words = descriptor_word_vectors(state, ours, None, taken.descriptor_run)
  first = FIRST_WORD_ID
  np.testing.assert_array_equal(words.vectors[first], own[first])
  np.testing.assert_array_equal(
    words.vectors[first + 1 :], begun.vectors[first:][::-1]
  )
  assert words.has_vector[first:].all() and not words.has_vector[:first].any()
  encoder = DescriptorEncoder.of(
    space.labels, config.model.head.descriptor, ours, words
  )
  np.testing.assert_allclose(
    encoder.encode(space.labels),
    ended['head/descriptors'][: len(space.labels)],
    atol=1e-6,
  )
