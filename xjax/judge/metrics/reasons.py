"""Why a metric differs between protocols, in sentences."""

from xjax.judge.metrics.protocols import (
  DOCUMENT_KINDS,
  MACRO_KINDS,
  Protocol,
  Ratio,
  Recalled,
  Universe,
  kind_of,
)


def reasons(
  metric: str, us: Protocol, them: Protocol, slice_name: str = 'all'
) -> tuple[str, ...]:
  """Why two protocols may differ in a metric: a sentence for each reason.

  Args:
    metric: such as 'PSnDCG@5'.
    us: one protocol.
    them: another.
    slice_name: of the slice that is judged.

  Returns:
    Sentences with fields for str.format: {without_gold} documents without
    gold in the slice, {labels} of it, {gold_labels} of those that are gold,
    {up_to_largest} labels up to the largest that is gold or listed,
    {between} labels whose training count only one of the two calls frequent.
  """
  kind = kind_of(metric)
  found = []
  if us.frequent_from != them.frequent_from and slice_name in (
    'frequent',
    'few',
  ):
    found.append(_FREQUENT)
  if us.skip_without_gold != them.skip_without_gold:
    if kind in (*DOCUMENT_KINDS, *_COUNTS):
      found.append(_SKIPPED if us.skip_without_gold else _COUNTED)
  if us.psndcg != them.psndcg and kind == 'PSnDCG@k':
    found.append(_PSNDCG[us.psndcg])
  if us.psr != them.psr and kind in ('PSR@k', 'PSR-norm@k'):
    found.append(_PSR[us.psr])
  if us.coverage_over != them.coverage_over and kind == 'coverage@k':
    found.append(_over('coverage', us.coverage_over, them.coverage_over))
  if us.macro_over != them.macro_over and kind in MACRO_KINDS:
    found.append(_over('the mean', us.macro_over, them.macro_over))
  names = {'us': us.name, 'them': them.name}
  known = {'our_from': us.frequent_from, 'their_from': them.frequent_from}
  return tuple(_fill(sentence, names | known) for sentence in found)


_COUNTS = ('n_docs', 'n_skipped')
_FREQUENT = (
  '{between} labels are frequent for only one of the two: {us} asks for '
  '{our_from} training documents, {them} for {their_from}'
)
_SKIPPED = (
  '{without_gold} documents have no gold label: skipped by {us}, counted as 0 '
  'by {them}'
)
_COUNTED = (
  '{without_gold} documents have no gold label: counted as 0 by {us}, skipped '
  'by {them}'
)
_PSNDCG = {
  Ratio.SUMS: (
    'each document is divided by its own ideal DCG before the ratio in {them}, '
    'not in {us}'
  ),
  Ratio.MEANS: (
    'each document is divided by its own ideal DCG before the ratio in {us}, '
    'not in {them}'
  ),
}
_PSR = {
  Recalled.WEIGHT: (
    'a document is divided by the weights of its gold labels in {us}, by their '
    'number in {them}'
  ),
  Recalled.COUNT: (
    'a document is divided by the number of its gold labels in {us}, by their '
    'weights in {them}'
  ),
}
_UNIVERSES = {
  Universe.ALL: 'all {labels} labels',
  Universe.GOLD: 'the {gold_labels} labels that are gold here',
  Universe.UP_TO_LARGEST: (
    'the {up_to_largest} labels up to the largest that is gold or listed'
  ),
}


def _over(what: str, ours: Universe, theirs: Universe) -> str:
  return (
    f'{what} is over {_UNIVERSES[ours]} in {{us}}, over {_UNIVERSES[theirs]} '
    'in {them}'
  )


def _fill(sentence: str, values: dict[str, object]) -> str:
  """Fills in these fields and leaves the others."""
  for name, value in values.items():
    sentence = sentence.replace(f'{{{name}}}', str(value))
  return sentence
