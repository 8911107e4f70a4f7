"""Published numbers: read again from the papers, by hand."""

import re

import pytest

from xjax.report.tables.published import (
  datasets,
  find_dataset,
  label_count,
  papers,
  published,
)

# paper, table, dataset, slice, system, metric, what is printed there.
PRINTED = """
  chalkidis2019|2|EURLEX57K|frequent|BERT-BASE (512 tokens)|nDCG@5|0.846
  chalkidis2019|4|EURLEX57K|all|BIGRU-LWAN (H)|RP@5|0.747
  chalkidis2019|7|EURLEX57K|all|CNN-LWAN|R@5|0.647
  tail_labels|3|Wiki10-31K|all|SVM|micro-F1@1|0.0845
  tail_labels|4|AmazonCat-13K|all|LightXML|PSP@3|0.6314
  bertalis|6|NYT (leaves)|all|HGCLR|P@3|0.5351
  bertalis|10|Amazon-670K|all|CascadeXML|P@10|0.2619
  hauss||WoS|all|RADAr|R-Precision|0.866
  hauss||Wiki10-31K|all|XR-Transformer|macro-F1|0.0035
  wang2022|2|NYT|all|BERT|macro-F1|0.6562
  schultheis2022|1|AmazonCat-13K|all|\
    DiSMEC (1000 head labels in training)|macro-R@3|0.045
  schultheis2022|3|Amazon-670K|all|COV-PLT (beta 0.5)|P@1|0.44
  bhatia2016||LF-AmazonTitles-131K|all|NGAME|PSnDCG@5|0.4531
  bhatia2016||Wikipedia-500K|all|AttentionXML|PSP@5|0.5015
"""
METRIC = re.compile(
  r'(P|R|RP|nDCG|nDCG-full|Hit|PSP|PSnDCG|coverage|macro-P|macro-R'
  r'|m[ia]cro-F1)@\d+|R-Precision|m[ia]cro-F1'
)


@pytest.mark.parametrize('printed', PRINTED.strip().splitlines())
def test_as_printed(printed):
  *where, metric, value = (cell.strip() for cell in printed.split('|'))
  found = [
    row.values[metric]
    for row in published()
    if [row.paper.file, row.table, row.dataset, row.slice, row.system] == where
  ]
  assert found == [float(value)]


def test_rows_per_paper():
  counts = [sum(r.paper == paper for r in published()) for paper in papers()]
  # 12 systems x 4 slices x 5 tables, 4 embeddings and 5 zones; 5 systems x 3
  # datasets x 2 tables; ...; 21 datasets of the repository.
  assert counts == [249, 30, 40, 23, 26, 56, 287]
  benchmarks = [r for r in published() if r.paper.file == 'bhatia2016']
  assert len({r.dataset for r in benchmarks if not r.table}) == 21


def test_values_are_fractions_and_metrics_ours():
  for row in published():
    assert row.values and set(row.errors) <= set(row.values)
    for metric, value in row.values.items():
      assert 0 <= value <= 1, row
      assert METRIC.fullmatch(metric), metric
    most = 0.02 if row.paper.deviates else 0.005
    assert all(0 <= error < most for error in row.errors.values())
    assert row.split in ('test', 'dev')
    assert row.slice in ('all', 'frequent', 'few', 'zero')


def test_standard_deviations():
  rows = [r for r in published() if r.paper.file == 'hauss']
  assert all(set(row.errors) == set(row.values) for row in rows)
  (row,) = [r for r in rows if (r.dataset, r.system) == ('NYT', 'RADAr')]
  assert row.errors['macro-F1'] == 0.0092 and row.errors['P@1'] == 0.0008
  # The two versions of a paper are named apart.
  names = [str(p) for p in papers() if 'Bertalis' in p.authors]
  assert names == [
    'Bertalis et al. (preprint)',
    'Hauss et al. (published version of Bertalis et al.)',
  ]


def test_names_of_datasets():
  for name in ('EURLEX57K', 'EURLex-4K', 'Wiki10-31K', 'LF-AmazonTitles-1.3M'):
    assert find_dataset(name.lower().replace('-', '_')) == name
  assert find_dataset('mine') is find_dataset('') is None
  assert len(datasets()) == len(set(datasets())) > 25


def test_names_tell_the_number_of_labels():
  counts = {'Wiki10-31K': 31_000, 'LF-AmazonTitles-1.3M': 1_300_000}
  counts |= {'EURLEX57K': None, 'RCV1-v2': None}
  assert {name: label_count(name) for name in counts} == counts
