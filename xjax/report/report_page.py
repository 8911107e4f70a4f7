"""Builds a report page about systems judged on the same documents."""

from collections.abc import Mapping, Sequence
import pathlib
from typing import Any

from absl import logging

from xjax.core.errors import ConfigError
from xjax.data.files.faults import plural
from xjax.judge.criteria import USUAL_K
from xjax.judge.files.judge_files import DEPTH, JudgeFiles
from xjax.judge.judge import PROTOCOL
from xjax.judge.metrics.slices import ALL
from xjax.judge.request import JudgeRequest
from xjax.report.figures.figures import (
  binned_f1,
  frequency_picture,
  learning_curves,
  rank_curves,
  reliability_blocks,
)
from xjax.report.figures.plots import system_colours
from xjax.report.page.page import Block, Collapsible, Page, Paragraph, Section
from xjax.report.run_comparison import (
  best_by_tests,
  judge_runs,
  other_hierarchies,
  why_not_tested,
)
from xjax.report.runs import (
  SEED,
  JudgedRun,
  SystemRuns,
  check_names,
  check_same_documents,
  group_by_seed,
  group_metrics,
  protocols,
)
from xjax.report.sources import OWN, read_runs
from xjax.report.table import Table
from xjax.report.tables.metrics import (
  empty_slices,
  full_tables,
  level_table,
  levels_of,
  main_columns,
  main_table,
  note_lines,
  path_table,
)
from xjax.report.tables.published import (
  datasets,
  find_dataset,
  label_count,
  published_folds,
)
from xjax.report.tables.systems import (
  config_table,
  cost_table,
  label_space_remarks,
  label_tally,
  worst_labels,
)
from xjax.report.terminal.judgement import recall_lines

_ROUNDING = 0.15  # 2,812,281 labels are called 3M
_FEW_FIELDS = 15  # a longer table of fields is folded


def report(
  arguments: Sequence[str],
  command: str,
  split: str = '',
  names: Sequence[str] = (),
  dataset: str = '',
  files: JudgeFiles = OWN,
  request: JudgeRequest | None = None,
  metrics: Sequence[str] = (),
) -> Page:
  """Reads systems and builds the page that reports on them.

  `command` is shown as it was typed. By default, `split` is the first that all
  workdirs have, `names` are those of folders or files, `dataset` is the one
  that a config names, and `metrics` are the usual ones. A DataError says that a
  path is no workdir, evaluation or prediction file, that no system has gold, or
  that the systems were judged on different documents.
  """
  if dataset and not find_dataset(dataset):
    raise ConfigError(
      f'--dataset={dataset}: no published numbers for this dataset; choose one '
      'of: ' + ', '.join(datasets())
    )
  request = request or JudgeRequest()
  depth = max((DEPTH, *request.ks))
  runs = read_runs(arguments, split, names, files, depth)
  check_same_documents(runs)
  runs = judge_runs(runs, request)
  groups = group_by_seed(runs)
  check_names(groups)
  return build_page(groups, command, dataset or dataset_of(runs), metrics)


def build_page(
  groups: Sequence[SystemRuns],
  command: str,
  dataset: str,
  metrics: Sequence[str] = (),
) -> Page:
  """Builds the page of systems that were judged on the same documents."""
  colours = system_colours([group.name for group in groups])
  first = groups[0].first
  names = protocols(first.metrics)
  protocol = PROTOCOL if PROTOCOL in names else names[0]
  columns = main_columns(
    [group_metrics(group, protocol) for group in groups], metrics
  )
  best = best_by_tests(groups, columns, protocol)
  results = main_table(groups, protocol, columns, colours, best)
  title = ', '.join(group.name for group in groups)
  return Page(
    title=f'{title}: judged on {first.split}' if first.split else title,
    sections=[
      Section('Judged data', _header(groups, command)),
      Section('Results', _results(groups, results, protocol)),
      Section('By place in the list', [rank_curves(groups)]),
      Section(
        'Frequent and rare labels',
        [frequency_picture(first), binned_f1(groups, USUAL_K, protocol)],
      ),
      *_hierarchy(groups, colours, protocol),
      Section('Probabilities', reliability_blocks(groups)),
      Section('Training', [learning_curves(groups)]),
      Section('Labels missed more than expected', _worst(groups)),
      Section('Published numbers', published_blocks(dataset, groups, colours)),
      Section('All metrics', full_tables(groups)),
    ],
    results=results,
  )


def _header(groups: Sequence[SystemRuns], command: str) -> list[Block]:
  p = groups[0].first.predictions
  n_runs = sum(len(group.runs) for group in groups)
  seeds = f', {n_runs} runs' if n_runs > len(groups) else ''
  spaces = {group.name: group.first.predictions for group in groups}
  return [
    Paragraph(
      f'{plural(len(groups), "system")}{seeds}, judged on {len(p):,} documents '
      f'and {len(p.labels):,} labels. Values are fractions; point at a rounded '
      'number to see all its digits.'
    ),
    Table.of(
      ('system', 'read from', 'judged on', 'scores'),
      map(_system_row, groups),
      n_text=4,
    ),
    *_costs(groups),
    *(
      Paragraph(f'Gold labels that the search of {group.name} keeps, {line}.')
      for group in groups
      for line in recall_lines(group.first.predictions.recalls)
    ),
    *map(
      Paragraph, (*_propensities(groups[0].first), *label_space_remarks(spaces))
    ),
    Paragraph(command, command=True),
  ]


def _propensities(run: JudgedRun) -> list[str]:
  if run.criteria.weights_L is not None:
    return ['Label weights are from --inv_prop.']
  a, b = run.criteria.propensity
  named = f'Propensities: A {a:g}, B {b:g}.'
  return [named] * (run.predictions.n_train > 0)


def _system_row(group: SystemRuns) -> tuple[str, ...]:
  first = group.first
  seeds = [run.config[SEED] for run in group.runs if run.config]
  judged = first.split or 'a file'
  if len(seeds) > 1:
    judged += f', seeds {", ".join(map(str, seeds))}'
  where = ', '.join(str(_short(run.path)) for run in group.runs)
  depth = first.predictions.lists['all'].ids.shape[1]
  predictions = first.predictions
  kind, how = predictions.score_kind.value, predictions.selection_with_recalls
  return group.name, where, judged, f'{kind}, lists of {depth}, {how}'


def _short(path: pathlib.Path) -> pathlib.Path:
  cwd = pathlib.Path.cwd()
  return path.relative_to(cwd) if path.is_relative_to(cwd) else path


def _costs(groups: Sequence[SystemRuns]) -> list[Block]:
  blocks: list[Block] = []
  if any(run.record for group in groups for run in group.runs):
    blocks.append(cost_table(groups))
  if differences := config_table(groups):
    title = 'Fields in which the configs differ'
    few = len(differences.rows) <= _FEW_FIELDS
    blocks.append(Collapsible(title, [differences], open=few))
  return blocks


def _results(
  groups: Sequence[SystemRuns], results: Table, protocol: str
) -> list[Block]:
  cells = sum(results.rows, [])
  notes = list(map(Paragraph, note_lines(groups)))
  said = [f'Protocol {protocol}.']
  better = (
    'significantly better than the values of all other systems (paired '
    "approximate randomization over documents, p < 0.05 after Holm's "
    'correction).'
  )
  if any(cell.best for cell in cells):
    said.append(f'A bold value is {better}')
  elif len(groups) > 1:
    why = why_not_tested(groups, protocol)
    untested = f'No value is tested for significance: {why}.'
    said.append(untested if why else f'No value is {better}')
  if any(cell.spread is not None for cell in cells):
    said.append(
      '± is one standard error over seeds, or half of a bootstrap interval.'
    )
  if empty := empty_slices([group_metrics(g, protocol) for g in groups]):
    said.append(f'Slices without values are left out: {", ".join(empty)}.')
  why_missing = [Collapsible('Why values are missing', notes)] if notes else []
  return [Paragraph(' '.join(said)), results, *why_missing]


def _hierarchy(
  groups: Sequence[SystemRuns], colours: Mapping[str, str], protocol: str
) -> list[Section]:
  """Returns the section about parents of labels; [] if no label has any."""
  values_of = {g.name: group_metrics(g, protocol)[ALL] for g in groups}
  if not any(levels_of(values) for values in values_of.values()):
    return []
  blocks: list[Block] = [
    Paragraph(
      'Labels from the threshold of micro-F1 on are predicted. hP, hR and hF1 '
      'add all ancestors to the predicted and to the gold labels. The '
      'consistency is the share of predicted labels whose parents, as far as '
      'they are labels, are predicted too.'
    ),
    path_table(values_of, colours),
    level_table(values_of, colours),
  ]
  if others := other_hierarchies([run for g in groups for run in g.runs]):
    blocks.append(
      Paragraph(
        f'The labels of {", ".join(others)} have other parents than those of '
        'the first system, so the figures of this section cannot be compared.'
      )
    )
  return [Section('Hierarchy of the labels', blocks)]


def _worst(groups: Sequence[SystemRuns]) -> list[Block]:
  blocks: list[Block] = [
    Paragraph(
      'Rare labels are missed often by every system. So a label is expected to '
      'be missed as often as the gold labels in the same bin of frequency are '
      'on average. The labels are ranked by the number of misses beyond that.'
    )
  ]
  names = {k: v for group in groups for k, v in group.first.names.items()}
  for group in groups:
    run = group.first
    k = min(USUAL_K, run.predictions.lists[ALL].ids.shape[1])
    counts = label_tally(run.predictions, k)
    seed = f' (seed {run.config[SEED]})' if len(group.runs) > 1 else ''
    blocks.append(
      Collapsible(
        f'{group.name}{seed}',
        [worst_labels(run, names, counts, k)],
        open=len(blocks) == 1,
      )
    )
  return blocks


def published_blocks(
  dataset: str, groups: Sequence[SystemRuns], colours: Mapping[str, str]
) -> list[Block]:
  """Shows the published numbers of a dataset, if there are any."""
  name = find_dataset(dataset)
  if name is None:
    return [
      Paragraph(
        'The dataset is not known, so there are no published numbers to '
        'compare with. Choose a dataset with --dataset=NAME: '
        f'{", ".join(datasets())}.'
      )
    ]
  intro = (
    f'Published values for {name}; the title of each table names its split.'
  )
  n, size = len(groups[0].first.predictions.labels), label_count(name)
  if size is not None and abs(n - size) > _ROUNDING * size:
    warning = (
      f'The judged data have {n:,} labels, but {name} has about {size:,}, so '
      'the values are not comparable.'
    )
    logging.warning('%s', warning)
    intro = f'{intro} {warning}'
  return [Paragraph(intro), *published_folds(name, groups, colours)]


def dataset_of(runs: Sequence[JudgedRun]) -> str:
  """Finds the dataset by the kind of data or the data folder of a config."""
  for run in runs:
    data: Mapping[str, Any] = (run.config or {}).get('data', {})
    folder = pathlib.Path(data.get('dir', '')).name
    kind = data.get('kind', '').removesuffix('Data')
    for name in (kind, folder.partition('.')[0], folder):
      if dataset := find_dataset(name):
        return dataset
  return ''
