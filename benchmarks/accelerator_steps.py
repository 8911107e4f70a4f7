"""Builds and times the training steps of accelerator.py, and counts their work.

A step is the trainer's: forward, loss, backward, clipping and update. It is
compiled for the devices of a mesh, which need not be of this machine.
"""

from collections.abc import Callable
import dataclasses
import functools
import time
from typing import Any

from accelerator_compare import one_device
from flax import nnx
import jax
import jax.numpy as jnp
from measurement import memory, seconds_of
import numpy as np

from xjax.core.mesh import put_batch
from xjax.losses.bce import bce
from xjax.networks.batch import TokenBatch
from xjax.networks.encoders.bert import BertConfig
from xjax.networks.encoders.encoder import NoEmbedding
from xjax.networks.heads.head import HeadInputs
from xjax.networks.heads.ova import OneVsAllConfig
from xjax.networks.pooling import ClsConfig
from xjax.networks.pretrained.architecture import Activation, BertArchitecture
from xjax.networks.rows.fused import RowUpdate, StepScalars, fused_loss
from xjax.networks.rows.storage import Storage
from xjax.networks.rows.update import FusedSGD
from xjax.networks.text_model import TextModelConfig, build
from xjax.train.neural_train import NeuralTrain
from xjax.train.optimizer import label_row_optimizer, make_optimizer
from xjax.train.optimizer_config import AdamW
from xjax.train.state import plan_state
from xjax.train.step import make_train_step

ROUNDS = 5


@dataclasses.dataclass(frozen=True)
class Work:
  """Describes a training step: the network, and the shape of a batch."""

  model: TextModelConfig
  train: NeuralTrain
  labels: int
  vocab: int
  documents: int
  tokens: int  # of each document
  positives: int
  dtype: str
  architecture: BertArchitecture | None = None

  @property
  def operations(self) -> float:
    """Returns the multiplications and additions of a step with BERT.

    Each weight of the layers' matrices takes 6 per token: 2 in the forward pass
    and 4 in the backward pass. Embeddings, biases and norms do not count.
    Attention takes 12 x tokens x features per token and layer: products of
    queries and keys, and of weights and values, 2 x tokens x features each,
    three times. The head takes 6 x features x labels per document. What is
    computed again in the backward pass does not count.
    """
    sizes = self.architecture
    matrices = sizes.layers * (4 * sizes.dim**2 + 2 * sizes.dim * sizes.inner)
    attention = 12 * sizes.layers * sizes.dim * self.tokens
    of_document = self.tokens * (6 * matrices + attention)
    return self.documents * (of_document + 6 * sizes.dim * self.labels)


def bert_sizes(tiny: bool) -> dict[str, Any]:
  """Returns the sizes of BERT-base at 512 tokens, as bert_peer.py reads them.

  Without attention dropout, both sides use a flash attention kernel.
  """
  return {
    'models': {'base': (64, 2, 2, 128) if tiny else (768, 12, 12, 3072)},
    'vocab': 200 if tiny else 30_522,
    'labels': 50 if tiny else 4271,
    'positives': 5,
    'learning_rate': 5e-5,
    'threads': 2,
    'batch': 4 if tiny else 64,
    'tokens': 32 if tiny else 512,
    'dropout': 0.1,
    'attention_dropout': 0.0,
  }


def bert_work(tiny: bool) -> Work:
  """Returns the step of BERT-base with a dense layer on [CLS]."""
  sizes = bert_sizes(tiny)
  return Work(
    _bert_model(sizes, OneVsAllConfig()),
    NeuralTrain(
      batch_size=sizes['batch'],
      learning_rate=sizes['learning_rate'],
      optimizer=AdamW(weight_decay=0.01),
      clip_norm=1.0,
    ),
    *(sizes[name] for name in ('labels', 'vocab', 'batch', 'tokens')),
    sizes['positives'],
    'bfloat16',
    bert_architecture(
      *sizes['models']['base'], sizes['vocab'], sizes['tokens']
    ),
  )


def _bert_model(sizes: dict, head: OneVsAllConfig) -> TextModelConfig:
  encoder = BertConfig(
    dropout=sizes['dropout'], attention_dropout=sizes['attention_dropout']
  )
  pooling = ClsConfig(dropout=sizes['dropout'])
  return TextModelConfig(NoEmbedding(), encoder, pooling, head)


def bert_architecture(
  dim: int, layers: int, heads: int, inner: int, vocab: int, tokens: int
) -> BertArchitecture:
  """Returns the sizes of a BERT with at least 512 positions."""
  return BertArchitecture(
    vocab_size=vocab,
    dim=dim,
    layers=layers,
    heads=heads,
    inner=inner,
    positions=max(tokens, 512),
    token_types=2,
    activation=Activation.GELU,
    norm_eps=1e-12,
    pad_id=0,
    position_offset=0,
  )


# Amazon-3M as the code of ELMO trains on it (github.com/xmc-aalto/elmo,
# config/dataset/amazon3m.yaml): BERT-base, 128 tokens, batches of 128, eight
# chunks of labels. A document has 36 labels on average.
AMAZON = {
  'labels': 2_812_281,
  'documents': 1_717_899,
  'batch': 128,
  'tokens': 128,
  'positives': 64,
  'dim': 768,
}


def amazon_sizes(tiny: bool) -> dict[str, int]:
  """Returns AMAZON, or a small form of it."""
  small = {'labels': 3000, 'documents': 1000, 'batch': 8, 'tokens': 16}
  return AMAZON | (small | {'positives': 4, 'dim': 64} if tiny else {})


def amazon_work(tiny: bool, storage: Storage, chunk: int) -> Work:
  """Returns the step of BERT-base with a head of 2.8 million labels."""
  sizes, bert = amazon_sizes(tiny), bert_sizes(tiny)
  return Work(
    _bert_model(bert, OneVsAllConfig(chunk=chunk, storage=storage)),
    NeuralTrain(
      batch_size=sizes['batch'],
      learning_rate=5e-5,
      optimizer=AdamW(weight_decay=0.01),
      rows=FusedSGD(learning_rate=0.05),
    ),
    sizes['labels'],
    bert['vocab'],
    *(sizes[name] for name in ('batch', 'tokens', 'positives')),
    'bfloat16',
    bert_architecture(*bert['models']['base'], bert['vocab'], sizes['tokens']),
  )


def lwan_sizes(tiny: bool) -> dict[str, Any]:
  """Returns the sizes of BiGRU-LWAN on full documents, also for its peer."""
  model, train = TextModelConfig(), NeuralTrain()
  model.embedding.dim = 16 if tiny else 200
  model.encoder.units = 16 if tiny else 300
  return {
    'vocab': 200 if tiny else 150_000,
    'labels': 50 if tiny else 4271,
    'batch': 4 if tiny else 16,
    'tokens': 40 if tiny else 2500,
    'positives': 5,
    'dim': model.embedding.dim,
    'units': model.encoder.units,
    'embedding_dropout': model.embedding.dropout,
    'encoder_dropout': model.encoder.dropout,
    'learning_rate': train.learning_rate,
  }


def lwan_work(tiny: bool, dtype: str) -> Work:
  """Returns the step of BiGRU-LWAN on full documents."""
  sizes, model = lwan_sizes(tiny), TextModelConfig()
  model.embedding.dim, model.encoder.units = sizes['dim'], sizes['units']
  return Work(
    model,
    NeuralTrain(batch_size=sizes['batch']),
    *(sizes[name] for name in ('labels', 'vocab', 'batch', 'tokens')),
    sizes['positives'],
    dtype,
  )


def step_of(work: Work, mesh: jax.sharding.Mesh) -> tuple[Any, Callable]:
  """Returns the plan of the state, and the step, which is not compiled yet."""
  optimizer = make_optimizer(work.train)
  plan = plan_state(
    lambda rngs: build(
      work.model,
      vocab_size=work.vocab,
      n_labels=work.labels,
      architecture=work.architecture,
      dtype=jnp.dtype(work.dtype),
      rngs=rngs,
    ),
    optimizer,
    mesh,
    rows=label_row_optimizer(work.train, np.zeros(work.labels, np.int32)),
  )
  return plan, make_train_step(plan, optimizer, bce, mesh)


def batch_of(work: Work) -> TokenBatch:
  """Returns a batch of random documents without padding."""
  rng, size = np.random.default_rng(0), work.documents
  # The labels of a document differ, because 97 is a prime number.
  first_B1 = rng.integers(0, work.labels, (size, 1))
  gold_BP = (first_B1 + 97 * np.arange(work.positives)) % work.labels
  return TokenBatch(
    tokens_BT=rng.integers(2, work.vocab, (size, work.tokens)).astype(np.int32),
    lengths_B=np.full(size, work.tokens, np.int32),
    positives_BP=gold_BP.astype(np.int32),
    mask_B=np.ones(size, bool),
    doc_B=np.arange(size, dtype=np.int32),
  )


def measured_step(work: Work, seconds: float) -> dict[str, Any]:
  """Compiles a training step for one device, and times it for some seconds."""
  mesh = one_device()
  with jax.set_mesh(mesh):
    plan, step = step_of(work, mesh)
    batch, key = put_batch(batch_of(work), mesh), jax.random.key(1)
    start = time.perf_counter()
    compiled = step.lower(plan.abstract, batch, key).compile()
    compile_seconds = time.perf_counter() - start
    state = [plan.init(jax.random.key(0))]

    def call() -> Any:
      state[0], metrics = compiled(state[0], batch, key)
      return metrics

    result = timed(call, seconds)
    loss = float(call().loss)
  result |= program_bytes(compiled)
  return result | {
    'loss': loss,
    'compile_seconds': compile_seconds,
    'peak_bytes': peak_bytes(),
    'documents_per_second': work.documents / result['seconds'],
  }


def head_step(
  storage: Storage, chunk: int, sizes: dict[str, int]
) -> tuple[nnx.State, Callable[[], nnx.State], Callable]:
  """Returns the abstract rows, their initializer, and a step of a head alone.

  The step has the loss of all labels, the gradient of the features, and SGD of
  the rows, as in benchmarks/ova_head.py.
  """
  config = OneVsAllConfig(chunk=chunk, storage=storage)
  inputs = HeadInputs(sizes['dim'], sizes['labels'])

  def head() -> nnx.Module:
    return config.build(inputs, nnx.Rngs(0))

  graphdef, abstract = nnx.split(nnx.eval_shape(head))

  def total(document_BD, rows, positives_BP, key):
    scalars = StepScalars(jnp.float32(0.01), jnp.float32(0), key)
    return fused_loss(
      nnx.merge(graphdef, rows),
      document_BD,
      positives_BP,
      jnp.ones(len(document_BD), bool),
      bce,
      RowUpdate(FusedSGD(), {}, scalars),
    )

  step = jax.jit(jax.value_and_grad(total, has_aux=True), donate_argnums=1)
  return abstract, jax.jit(lambda: nnx.state(head())), step


def head_inputs(sizes: dict[str, int]) -> tuple[jax.Array, ...]:
  """Returns the features of documents, their labels, and a key."""
  rng = np.random.default_rng(0)
  shape = sizes['batch'], sizes['dim']
  document_BD = rng.standard_normal(shape, np.float32) / sizes['dim'] ** 0.5
  gold = rng.integers(0, sizes['labels'], (sizes['batch'], sizes['positives']))
  return (
    jnp.asarray(document_BD, jnp.bfloat16),
    jnp.asarray(gold, jnp.int32),
    jnp.uint32(0),
  )


def measured_head(
  storage: Storage, chunk: int, sizes: dict[str, int], seconds: float
) -> dict[str, Any]:
  """Compiles a step of a head alone for one device, and times it."""
  with jax.set_mesh(one_device()):
    abstract, init, step = head_step(storage, chunk, sizes)
    document_BD, positives_BP, key = head_inputs(sizes)
    start = time.perf_counter()
    compiled = step.lower(document_BD, abstract, positives_BP, key).compile()
    compile_seconds = time.perf_counter() - start
    rows = [init()]

    def call() -> Any:
      (loss, (rows[0], _)), d_document_BD = compiled(
        document_BD, rows[0], positives_BP, key
      )
      return loss, d_document_BD, rows[0]

    result = timed(call, seconds)
  result |= program_bytes(compiled)
  return result | {
    'compile_seconds': compile_seconds,
    'peak_bytes': peak_bytes(),
  }


def timed(call: Callable[[], Any], seconds: float) -> dict[str, Any]:
  """Returns the median seconds of a call over rounds, and all rounds.

  Calls are asynchronous, so a round is many calls that wait only at its end.
  """

  def several(count: int) -> None:
    for _ in range(count):
      result = call()
    jax.block_until_ready(result)

  several(2)  # allocates, and loads the program
  once = seconds_of(lambda: several(1))
  count = max(1, min(200, int(seconds / ROUNDS / once)))
  rounds = [seconds_of(lambda: several(count)) / count for _ in range(ROUNDS)]
  return {'seconds': float(np.median(rounds)), 'rounds': rounds}


def planned(work: Work) -> dict[str, Any]:
  """Returns what the plan of a step says for this machine's device."""
  # The plan room imports what only runs need, such as Orbax and Grain.
  from xjax.data.formats.jsonl import JsonlData
  from xjax.data.tokens_config import SubwordsConfig, WordsConfig
  from xjax.models.contract import Config
  from xjax.models.neural.neural_model import NeuralModel
  from xjax.plan.chips import chip_named
  from xjax.plan.compiler import Refused, compiled, compiler_of, make_target
  from xjax.plan.plan import LONGEST, RunPlan, planned_mesh
  from xjax.plan.programs import state_parts, train_step
  from xjax.plan.sizes import BatchShape, RunSizes
  from xjax.train.neural_train import Dtype

  model, n, dtype = work.model, work.documents, Dtype(work.dtype)
  parts = model.embedding, model.encoder, model.pooling, model.head
  read = WordsConfig if work.architecture is None else SubwordsConfig
  config = Config(
    data=JsonlData(tokens=read(work.tokens, (work.tokens,))),
    model=NeuralModel(*parts),
    train=dataclasses.replace(work.train, compute_dtype=dtype),
  )
  shape = BatchShape(n, n, work.tokens, 0, work.positives)
  sizes = RunSizes(
    *(work.labels, n, 0, work.vocab, work.architecture), {shape: 1}
  )
  target, mesh = make_target(chip_named(''), 1), planned_mesh(config, 1)
  # make_plan would also compile top-k, and the step in the other dtype.
  step = functools.partial(train_step, config, sizes, shape)
  held, unmoved = state_parts(config, sizes, mesh)
  compiler = compiler_of(target.chip.platform)
  programs = compiled(target, {LONGEST: step})
  if isinstance(programs[LONGEST], Refused):
    return {'error': programs[LONGEST].reason}
  plan = RunPlan(
    *(config, sizes, target, mesh, dtype, None),
    *(held, unmoved, compiler, programs),
  )
  bound = plan.bound(LONGEST)
  return {
    'planned_bytes': plan.total,
    'planned_seconds': bound.seconds,
    'planned_bound': bound.by,
  }


def program_bytes(compiled: Any) -> dict[str, int]:
  """Returns what the compiler says that a program needs on its device."""
  stats = compiled.memory_analysis()
  new = stats.output_size_in_bytes - stats.alias_size_in_bytes
  arguments = stats.argument_size_in_bytes
  return {
    'argument_bytes': arguments,
    'temporary_bytes': stats.temp_size_in_bytes,
    'program_bytes': arguments + new + stats.temp_size_in_bytes,
  }


def peak_bytes() -> int:
  """Returns the peak bytes of this process on its device."""
  stats = jax.local_devices()[0].memory_stats()
  return stats['peak_bytes_in_use'] if stats else memory('VmHWM')
