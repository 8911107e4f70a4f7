"""What a run's model can do beside ranking its own labels."""

from collections.abc import Iterable

from xjax.config.kinds import KINDS
from xjax.config.run import Config
from xjax.core.errors import ConfigError
from xjax.data.config import FeatureFilesConfig
from xjax.score.config import ExactMatchModel, HeadConfig, NeuralModel


def check_explains(config: Config) -> None:
  """Refuses to say to which words labels attend where they do not.

  Raises:
    ConfigError: which heads can; or that the model reads no words one by one.
  """
  if not isinstance(config.model, NeuralModel):
    raise ConfigError(
      f'labels of {_names([type(config.model)])} cannot be explained: they do '
      'not attend to words'
    )
  head, tokens = config.model.head, config.data.tokens
  if not head.attends:
    able = _names(kind for kind in _heads() if kind.attends)
    raise ConfigError(
      f'labels of the head {_names([type(head)])} cannot be explained: they do '
      f'not attend to words; those of these heads can: {able}'
    )
  if isinstance(tokens, FeatureFilesConfig):
    raise ConfigError('labels cannot be explained: this run reads no words')
  if tokens.by_zone:
    raise ConfigError(
      'labels cannot be explained by words: in this run they attend to zones '
      '(data.tokens.by_zone)'
    )


def check_describes(config: Config) -> None:
  """Refuses to add labels by name where they are not known by descriptors.

  Raises:
    ConfigError: which heads can.
  """
  if isinstance(config.model, ExactMatchModel):
    return
  if not isinstance(config.model, NeuralModel):
    raise ConfigError(
      f'{_names([type(config.model)])} cannot score new labels: it knows labels'
      ' by their documents'
    )
  head = config.model.head
  if not head.describes:
    able = _names(kind for kind in _heads() if kind.describes)
    raise ConfigError(
      f'the head {_names([type(head)])} cannot score new labels: it does not '
      f'read their names; these heads can: {able}'
    )
  if isinstance(config.data.tokens, FeatureFilesConfig):
    raise ConfigError(
      'new labels cannot be scored by name: this run knows labels by vectors '
      'of an outside encoder'
    )


def _heads() -> list[type[HeadConfig]]:
  return [kind for kind in KINDS.values() if issubclass(kind, HeadConfig)]


def _names(kinds: Iterable[type]) -> str:
  names = {kind: name for name, kind in KINDS.items()}
  return ', '.join(names[kind] for kind in kinds)
