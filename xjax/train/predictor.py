"""A trained model from its workdir alone."""

from collections.abc import Iterable, Sequence
import dataclasses
import os
from typing import NamedTuple

import jax
import numpy as np

from xjax.core.errors import ConfigError, DataError
from xjax.core.mesh import DATA, MeshConfig, make_mesh
from xjax.core.types import PAD, Batch, ScoreKind
from xjax.data.schema import Document, LabelSpace, Split
from xjax.evaluate.calibration import Calibration, readable_scores
from xjax.models.scorer import ModelScorer
from xjax.train.calibration import saved_calibration
from xjax.train.checkpoint import read_params
from xjax.train.config import Config
from xjax.train.config_json import load_config
from xjax.train.inputs import Inputs
from xjax.train.neural import plan_neural
from xjax.train.state import from_paths
from xjax.train.warm_start import best_step
from xjax.train.workdir import Workdir


class Prediction(NamedTuple):
  """A label predicted for a document.

  Attributes:
    id: of the label.
    name: its descriptor.
    score: a probability, calibrated where the run is; a margin that is not
      calibrated stays one.
  """

  id: str
  name: str
  score: float


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
  """Scores labels for text (a core.types.Scorer).

  Attributes:
    config: of the run.
    space: its labels.
    inputs: makes batches as the run did.
    scorer: the model.
    step: of its checkpoint.
    calibration: of the scores that predict shows; topk gives them raw.
  """

  config: Config
  space: LabelSpace
  inputs: Inputs
  scorer: ModelScorer
  step: int
  calibration: Calibration | None = None

  @property
  def score_kind(self) -> ScoreKind:
    """What the scores of topk are."""
    return self.scorer.score_kind

  def topk(
    self,
    batch: Batch,
    k: int,
    weights: np.ndarray | None = None,
    slices: Sequence[np.ndarray] = (),
    allowed: np.ndarray | None = None,
  ) -> tuple[np.ndarray, np.ndarray]:
    """(ids_GBK, scores_GBK) as in core.types.Scorer."""
    return self.scorer.topk(batch, k, weights, slices, allowed)

  def batches(self, split: Split) -> Iterable[Batch]:
    """Batches of a split, every document once, for the evaluator."""
    return self.inputs.split_batches(split)

  def text_batches(
    self, documents: Sequence[str | Document]
  ) -> Iterable[Batch]:
    """Batches of texts, every one once; no larger than they need."""
    return self.inputs.text_batches(documents, self.scorer.mesh.shape[DATA])

  def predict(
    self, documents: Sequence[str | Document], k: int = 20
  ) -> list[list[Prediction]]:
    """The k best labels of each document.

    Args:
      documents: texts, or documents, of which the zones of the run are read.
      k: length of the lists; shorter where labels run out.

    Returns:
      For each document its labels, best first.
    """
    lists: list[list[Prediction]] = [[] for _ in documents]
    for batch in self.text_batches(documents):
      ids_GBK, scores_GBK = self.topk(batch, k)
      for row, ids_K, scores_K in zip(batch.doc_B, ids_GBK[0], scores_GBK[0]):
        if row != PAD:
          lists[row] = self._predictions(ids_K, scores_K)
    return lists

  def _predictions(
    self, ids_K: np.ndarray, scores_K: np.ndarray
  ) -> list[Prediction]:
    real = ids_K != PAD
    scores = readable_scores(scores_K[real], self.score_kind, self.calibration)
    labels = (self.space.labels[i] for i in ids_K[real])
    return [
      Prediction(label.id, label.name, float(score))
      for label, score in zip(labels, scores)
    ]


def load_predictor(workdir: str | os.PathLike) -> Predictor:
  """The best checkpoint of a run (else the newest) on the present devices.

  Needs nothing but the workdir.

  Raises:
    DataError: there is no run, or a file of it is missing or damaged.
  """
  found = Workdir.at(workdir)
  if not found.config.exists():
    raise DataError(f'{found.path}: no run of xjax here (no config.json)')
  config = load_config(found.config)
  space = found.label_space()
  vocab = found.vocabulary()
  step = best_step(found)
  if step is None:
    raise DataError(f'{found.checkpoints}: no complete checkpoint')
  mesh = _present_mesh(config)
  plan = plan_neural(config, space, len(vocab), mesh)
  like = plan.abstract.params
  params = from_paths(like, read_params(found.checkpoints, step, like))
  scorer = ModelScorer(plan.graphdef, params, mesh, space.n_trained)
  method, kind = config.eval.calibration, scorer.score_kind
  calibration = saved_calibration(found, method, step, kind)
  inputs = Inputs(config, vocab)
  return Predictor(config, space, inputs, scorer, step, calibration)


def _present_mesh(config: Config) -> jax.sharding.Mesh:
  """The run's mesh, or where it does not fit all devices for documents."""
  try:
    mesh = make_mesh(config.mesh)
  except ConfigError:
    mesh = make_mesh(MeshConfig())
  if config.eval.batch_size % mesh.shape[DATA]:
    # The label axis divides whatever the batch is.
    mesh = make_mesh(MeshConfig(data=1, label=-1))
  return mesh
