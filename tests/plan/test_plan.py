"""Compares plans with the programs of real runs."""

import dataclasses

import jax
import pytest

from tests.fixtures.shrink import changed, shrink
from xjax.core.errors import ConfigError
from xjax.core.mesh import padded_labels
from xjax.core.mesh_config import MeshConfig
from xjax.data.formats.jsonl import JsonlData
from xjax.data.label_trees.levels import LevelsConfig
from xjax.data.load import load_corpus
from xjax.data.tokens_config import (
  FeatureFilesConfig,
  SubwordsConfig,
  WordsConfig,
)
from xjax.losses.label_weights import ClassBalancedWeights
from xjax.models.contract import Config
from xjax.models.neural import neural_scorer, neural_training
from xjax.models.neural.neural_model import NeuralModel
from xjax.models.neural.shortlists import LevelShortlist, RunShortlist
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding, NoEncoder, Remat
from xjax.networks.encoders.feature_vectors import FeaturesConfig
from xjax.networks.encoders.han import HANConfig
from xjax.networks.encoders.layers import EmbeddingConfig
from xjax.networks.heads.generation.hbgl import HBGLConfig
from xjax.networks.heads.label_attention import LabelAttentionConfig
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import (
  ClsConfig,
  MeanConfig,
  NoPooling,
  SelfAttentionConfig,
)
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedAdam, FusedSGD
from xjax.plan import plan as planning
from xjax.plan.chips import CHIPS
from xjax.plan.compiler import Compiled, Refused, make_target
from xjax.plan.costs import Collective
from xjax.plan.plan import (
  COMMONEST,
  LONGEST,
  RANKING,
  advice,
  make_plan,
  planned_mesh,
)
from xjax.plan.programs import ROWS, batch_of, ranking
from xjax.plan.sizes import BERT_BASE, assumed_sizes, corpus_sizes
from xjax.report.terminal.plan_lines import advice_text, plan_text
from xjax.run.fit import fit
from xjax.train.neural_train import Dtype, NeuralTrain

LAPTOP = CHIPS['laptop']
GIB = 2**30


@pytest.fixture(scope='module')
def n_devices():
  return 8


def one_vs_all(rows=None, **head):
  """Returns a config with a one-vs-all head on document vectors."""
  train = NeuralTrain(batch_size=64)
  return Config(
    data=JsonlData(tokens=FeatureFilesConfig()),
    model=NeuralModel(
      FeaturesConfig(dim=128),
      NoEncoder(),
      MeanConfig(),
      OneVsAllConfig(chunk=2048, **head),
    ),
    train=dataclasses.replace(train, rows=rows) if rows else train,
  )


def bert():
  return Config(
    data=JsonlData(tokens=SubwordsConfig(max_tokens=64, buckets=(64,))),
    model=NeuralModel(
      NoEmbedding(), BertConfig(), ClsConfig(), OneVsAllConfig(chunk=512)
    ),
    train=NeuralTrain(batch_size=32),
  )


TINY_BERT = dataclasses.replace(
  BERT_BASE, vocab_size=5000, dim=64, layers=1, heads=2, inner=256
)


def recorded(make, found, kind):
  """Wraps what makes a program, to note the memory of its first call."""

  def wrapped(*arguments, **named):
    program = make(*arguments, **named)

    def call(*arguments, **named):
      if kind not in found:
        # Label weights make the step a functools.partial.
        step, more = getattr(program, 'func', program), {}
        more = getattr(program, 'keywords', more)
        lowered = step.lower(*arguments, **named, **more)
        found[kind] = lowered.compile().memory_analysis()
      return program(*arguments, **named)

    return call

  return wrapped


@pytest.mark.thorough
def test_a_plan_has_the_memory_of_the_run_itself(
  monkeypatch, tmp_path, all_devices
):
  config = shrink(Config())
  config.mesh = MeshConfig(2, 4)
  config.train.label_weights = ClassBalancedWeights()
  config.data.tokens = WordsConfig(max_tokens=16, buckets=(16,))
  found = {}
  for module, name, kind in (
    (neural_training, 'make_train_step', LONGEST),
    (neural_scorer, 'topk_program', RANKING),
  ):
    wrapped = recorded(getattr(module, name), found, kind)
    monkeypatch.setattr(module, name, wrapped)
  fit(config, tmp_path)
  sizes = corpus_sizes(config, load_corpus(config.data, config.seed))
  plan = make_plan(config, sizes, make_target(LAPTOP, 8))
  for kind, program in plan.programs.items():
    memory = found[kind]
    assert program.arguments == memory.argument_size_in_bytes
    assert program.outputs == memory.output_size_in_bytes
    assert program.aliases == memory.alias_size_in_bytes
    assert program.temporaries == memory.temp_size_in_bytes
  # On CPUs nothing is padded. A step also has its number and the key, and does
  # not read the documents' rows in the split.
  assert abs(plan.programs[LONGEST].arguments - plan.state) < 64
  text = plan_text(plan)
  assert 'fits' in text and 'bound by' in text and 'all-reduce' in text


def compiled_by(monkeypatch, make):
  """Lets `make(config, kind)` say what a compiler would."""
  configs = []

  def compiled(target, programs):
    found = {}
    for kind, program in programs.items():
      parts = [program.args, getattr(program.func, 'args', ())]
      config = next(x for x in sum(parts, ()) if isinstance(x, Config))
      configs.append(config)
      found[kind] = make(config, kind)
    return found

  monkeypatch.setattr(planning, 'compiled', compiled)
  monkeypatch.setattr(planning, 'compiler_of', lambda platform: 'compiler 1.0')
  return configs


def program(temporaries=GIB, operations=1e12, collectives=()):
  sizes = 2 * GIB, GIB, GIB, temporaries, 0
  return Compiled(*sizes, operations, tuple(collectives), 3.0)


def plan_of(config, chip='h200', devices=1, sizes=None, labels=100_000):
  if sizes is None:
    sizes = assumed_sizes(config, labels, 10_000)
    if sizes.architecture:
      sizes = dataclasses.replace(sizes, architecture=TINY_BERT)
  topology = '2x2' if chip == 'v5e' else ''
  target = make_target(CHIPS[chip], None if topology else devices, topology)
  return make_plan(config, sizes, target)


def test_bounds_and_an_epoch_by_hand(monkeypatch):
  ring = Collective('all-reduce', ((),), GIB, False, size=8)

  def make(config, kind):
    slow = config.train.compute_dtype is Dtype.FLOAT32
    return program(
      operations={LONGEST: 4e12, COMMONEST: 2e12}.get(kind, 1e12),
      collectives=[ring] * (kind == RANKING or slow),
    )

  compiled_by(monkeypatch, make)
  sizes = assumed_sizes(one_vs_all(), 1000, 640)
  # Of 5 batches, 2 are the commonest and one lies between it and the longest.
  shape = next(iter(sizes.steps))
  steps = {
    dataclasses.replace(shape, tokens=n): count
    for n, count in ((1, 1), (2, 2), (4, 1), (6, 1))
  }
  sizes = dataclasses.replace(sizes, steps=steps)
  plan = plan_of(one_vs_all(), sizes=sizes)
  chip, moved = plan.target.chip, 2 * GIB + GIB + 2 * GIB
  assert (plan.dtype, plan.other) == (Dtype.BFLOAT16, Dtype.FLOAT32)
  longest, other = plan.bound(LONGEST), plan.bound(plan.in_other)
  assert longest.compute == pytest.approx(4e12 / 989e12)
  assert longest.memory == pytest.approx(moved / chip.bandwidth)
  assert (longest.links, longest.by) == (0, 'compute')
  assert other.compute == pytest.approx(1e12 / 67e12)
  assert other.links == pytest.approx(2 * 7 / 8 * GIB / 450e9)
  assert other.network == 0
  short = plan.bound(COMMONEST).seconds
  assert plan.bound(COMMONEST).by == 'compute' or short > 2e12 / 989e12
  middle = (short + longest.seconds) / 2
  assert plan.epoch == pytest.approx(3 * short + middle + longest.seconds)
  text = plan_text(plan)
  assert 'in float32 takes 3.7 times as long' in text
  assert '989' not in text and 'compiler 1.0' in text
  epochs = plan.config.train.steps / 5
  assert f'steps, {epochs:.1f} epochs' in text


def test_shortlists_and_frozen_parameters_are_not_moved(monkeypatch):
  compiled_by(monkeypatch, lambda config, kind: program())
  whole, short = one_vs_all(FusedAdam()), one_vs_all(FusedAdam())
  for config in whole, short:
    config.data.tokens = WordsConfig(max_tokens=8, buckets=(8,))
    config.model = dataclasses.replace(
      config.model, embedding=EmbeddingConfig(dim=128)
    )
  short.model.shortlist = RunShortlist(50, workdir='runs/tree')
  plans = [plan_of(config) for config in (whole, short)]
  assert [x.sizes.longest.listed for x in plans] == [0, 50]
  rows = plans[0].parts[ROWS] + plans[0].parts["label rows' slots"]
  assert plans[1].unmoved - plans[0].unmoved == 2 * rows
  frozen = changed(bert(), 'train.freeze', ('encoder/*',))
  assert plan_of(bert()).unmoved == 0 < plan_of(frozen).unmoved


def test_parts_of_the_state_are_exact():
  plan = plan_of(one_vs_all(FusedSGD(), storage=Storage.FLOAT8), devices=8)
  rows = padded_labels(100_000) // 8
  assert plan.parts[ROWS] == rows * (128 + 4 + 1)
  assert not plan.programs and plan.total == plan.state
  assert 'compiler is not installed' in plan_text(plan)
  assert advice(plan) is None and 'use more devices' in advice_text(None)


def needed(table):
  """Returns what makes programs that need GiB by the fields of a config."""

  def make(config, kind):
    size = table(config)
    return Refused('refused') if size is None else program(int(size * GIB))

  return make


def memory_of(config):
  size = 400 / config.train.accumulate
  size /= 1 if config.model.encoder.remat is Remat.NONE else 2
  return size / config.mesh.label


@pytest.mark.parametrize(
  ('size', 'paths', 'fits'),
  [
    (lambda c: memory_of(c) / 2, 'remat', True),
    (memory_of, 'remat accumulate', True),
    # What does not help is not kept.
    (lambda c: 400 if c.mesh.label == 1 else 50, 'data label', True),
    (lambda c: 400 - 9 * c.mesh.label, 'data label', False),
    (lambda c: 400, '', False),
  ],
)
def test_advice_is_the_first_change_that_fits(monkeypatch, size, paths, fits):
  configs = compiled_by(monkeypatch, needed(size))
  config = changed(bert(), 'mesh', MeshConfig(2, 1))
  if 'label' in paths:  # a head whose rows the label axis alone divides
    config = changed(config, 'model.pooling', NoPooling())
    config = changed(config, 'model.head', LabelAttentionConfig())
  plan = plan_of(config, devices=2)
  assert not plan.fits
  before = len(configs)
  found = advice(plan)
  assert len({id(config) for config in configs[before:]}) <= 5
  if not paths:
    assert found is None
    return
  names = [path.rpartition('.')[2] for path, _ in found.changes]
  assert (' '.join(names), found.fits) == (paths, fits)
  flag = f'--config.{found.changes[0][0]}='
  assert flag in advice_text(found)


def test_judging_that_does_not_fit_needs_smaller_batches(monkeypatch):
  def make(config, kind):
    size = 4 * config.eval.batch_size if kind == RANKING else 50
    return program(size * GIB)

  configs = compiled_by(monkeypatch, make)
  plan = plan_of(bert())
  before = len(configs)
  found = advice(plan)
  assert found.changes == (('eval.batch_size', 16),) and found.fits
  assert (len(configs) - before, found.programs) == (1, [RANKING])
  assert advice_text(found).endswith(
    'GiB for top-k with\n  --config.eval.batch_size=16'
  )


def test_a_state_that_is_too_large_needs_other_rows(monkeypatch):
  compiled_by(
    monkeypatch,
    needed(lambda c: 1 if c.model.head.storage is Storage.BFLOAT16 else 500),
  )
  found = advice(plan_of(one_vs_all(), labels=200_000_000))
  rows = 'config.train.rows = FusedAdam() in the config file'
  assert advice_text(found).endswith(
    f'with\n  {rows}\n  --config.model.head.storage=bfloat16'
  )


def test_programs_that_a_compiler_refuses(monkeypatch):
  compiled_by(monkeypatch, lambda config, kind: Refused('no such operation'))
  text = plan_text(plan_of(bert()))
  assert f'{LONGEST}: no such operation' in text
  assert 'DOES NOT RUN' in text and 'inf' not in text


@pytest.mark.parametrize(('documents', 'rows'), [(9, 16), (17, 32), (32, 32)])
def test_documents_that_share_rows_fill_groups(documents, rows):
  config = changed(bert(), 'data.tokens.packed', True)
  config = changed(config, 'train.accumulate', 2)
  shape = assumed_sizes(config, 100, 100).longest
  shape = dataclasses.replace(shape, rows=documents)
  batch = batch_of(config, shape, planned_mesh(config, 8))
  assert batch.tokens_BT.shape == batch.segments_BT.shape == (rows, 64)


@pytest.mark.parametrize(
  ('shortlist', 'listed'),
  [
    (RunShortlist(50, workdir='runs/tree'), 50),
    (RunShortlist(50, in_training=False, workdir='runs/tree'), 50),
    (LevelShortlist(LevelsConfig((40,)), kept=3), 3 * 1000 // 40),
  ],
)
def test_judging_reads_what_is_proposed(shortlist, listed):
  config = changed(one_vs_all(), 'model.shortlist', shortlist)
  traced = ranking(config, assumed_sizes(config, 1000, 100), jax.devices())
  shapes = [x.shape for x in traced.jaxpr.in_avals]
  assert (64, 4 * listed) in shapes


def test_sizes_are_those_that_training_reads():
  config = shrink(Config())
  corpus = load_corpus(config.data, config.seed)
  sizes, space = corpus_sizes(config, corpus), corpus.label_space
  assert (sizes.labels, sizes.documents) == (space.n_trained, 16)
  assert sum(sizes.steps.values()) >= 1
  assert all(shape.documents == 16 for shape in sizes.steps)
  assert sizes.longest.tokens in config.data.tokens.buckets
  assert not sizes.assumed


def test_what_cannot_be_planned_is_refused():
  models = {
    'zones': NeuralModel(EmbeddingConfig(), HANConfig(), SelfAttentionConfig()),
    'the parents': NeuralModel(NoEmbedding(), BertConfig(), head=HBGLConfig()),
  }
  for message, model in models.items():
    with pytest.raises(ConfigError, match=message):
      assumed_sizes(dataclasses.replace(bert(), model=model), 10, 10)
  with pytest.raises(ConfigError, match='must be a multiple'):
    plan_of(one_vs_all(), devices=128)
  within = changed(one_vs_all(), 'mesh', MeshConfig(1, 16))
  with pytest.raises(ConfigError, match='in 2 slices or nodes, of 8 devices'):
    plan_of(within, devices=16)
  long = bert()
  long.data.tokens = SubwordsConfig(max_tokens=1024, buckets=(1024,))
  with pytest.raises(ConfigError, match='at most 512'):
    plan_of(long)
