r"""Searches for the best hyper-parameters of a model on EURLEX57K.

The searched values are those of Table 5 in Chalkidis et al., ACL 2019
(https://aclanthology.org/P19-1636). The search uses a tree-structured Parzen
estimator (HYPEROPT in the paper). The paper chooses the trial with the lowest
loss on dev; this sweep chooses the trial with the best RP@5. The paper does not
give the number of trials.

For HAN, the paper searches layers and units separately for words and zones.
Here both have the same number of units, as all that the paper reports, and
zones have one layer, as in its best model. Embeddings and encoder have the same
dropout.

  xjax sweep --config=sweep_table5:SYSTEM \
    --config.data.dir=DIR --workdir=runs/sweep_table5_SYSTEM

SYSTEM is a variant.

Data: EURLEX57K. Hardware: one GPU, or several (--workers=4 --gpus=0,1,2,3).
Expected (the paper's best for BIGRU-LWAN): 1 layer, 300 units, dropout 0.4,
word dropout 0, batches of 16, RP@5 0.766. Time: days.
"""

from xjax.configs import chalkidis2019, variants
from xjax.models.contract import Config
from xjax.sweep.config import MedianPruning, Space, Sweep, Tpe

_DOCUMENTS = 45_000  # documents in train
_EPOCHS = 20
_RATES = (0.1, 0.2, 0.3, 0.4, 0.5)

# System -> the fields that set its hidden units. For zero-shot systems, the
# units are not searched: the dimension of the word vectors determines them.
_UNITS = {
  'bigru_lwan': 'model.encoder.units',
  'bigru_att': 'model.encoder.units',
  'han': 'model.encoder.units,model.encoder.zone_units',
  'cnn_lwan': 'model.encoder.filters',
  'zero_cnn_lwan': '',
  'zero_bigru_lwan': '',
}


@variants(*_UNITS)
def get_config(system: str) -> Config:
  return getattr(chalkidis2019, f'eurlex57k_{system}')()


@variants(*_UNITS)
def get_sweep(system: str) -> Sweep:
  return Sweep(
    search=Tpe(space=_space(system), n_trials=40),
    pruning=MedianPruning(startup_trials=5, warmup_judgings=2),
  )


def _space(system: str) -> Space:
  space = {
    'model.embedding.dropout,model.encoder.dropout': _RATES,
    'model.embedding.word_dropout': (0.0, 0.01, 0.02),
    'train': tuple(_batches(size) for size in (8, 12, 16)),
  }
  if units := _UNITS[system]:
    space[units] = (200, 300, 400)
  if not system.endswith('cnn_lwan'):  # a CNN has one layer
    space['model.encoder.layers'] = (1, 2)
  return space


def _batches(size: int) -> dict[str, int]:
  """Returns the fields to set for a batch size and 20 epochs."""
  epoch = -(-_DOCUMENTS // size)
  return {
    'batch_size': size,
    'steps': _EPOCHS * epoch,
    'checkpoint_every': epoch,
    'judge_every': epoch,
  }
