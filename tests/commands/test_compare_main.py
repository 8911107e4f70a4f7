"""Comparison and report from the command line: files, messages, exit codes."""

import json
import re

import numpy as np
import pytest
import scipy.sparse

FEW = '--iterations=50', '--replicates=20', '--metrics=P@1,macro-F1@1'


def test_what_is_printed_and_written(run_main, two_systems, tmp_path):
  flags = *FEW, f'--output={tmp_path}', '--names=A,B'
  done = run_main('compare', *two_systems, *flags)
  assert done.stderr == ''
  assert done.stdout.startswith('baseline A: 4 documents, 3 labels\n')
  assert done.stdout.endswith(f'\n{tmp_path}\n')
  text = (tmp_path / 'comparison.json').read_text()
  first, *_ = json.loads(text)['differences']
  assert (first['metric'], first['system']) == ('P@1', 'B')
  assert first['difference'] == pytest.approx(1 / 3 - 2 / 3)


def test_slices_filter_and_weights(run_main, two_systems, tmp_path):
  (tmp_path / 'inv.txt').write_text('1\n2\n4\n')
  (tmp_path / 'pairs.txt').write_text('0 0\n')
  (tmp_path / 'order.txt').write_text('x\ny\nz\n')
  done = run_main(
    *('compare', *two_systems, *FEW, '--metrics=P@1,PSP@1'),
    *(f'--inv_prop={tmp_path}/inv.txt', f'--filter={tmp_path}/pairs.txt'),
    *('--by_frequency', '--slices=bin:1-9', f'--output={tmp_path}'),
    f'--label_order={tmp_path}/order.txt',
  )
  assert 'label weights are from --inv_prop' in done.stdout
  rows = json.loads((tmp_path / 'comparison.json').read_text())['differences']
  names = list(dict.fromkeys(row['slice'] for row in rows))
  assert names == ['all', 'frequent', 'few', 'zero', 'bin:1-9']
  weighed = next(row for row in rows if row['metric'] == 'PSP@1')
  # The first document's only gold is filtered out of the first place.
  assert weighed['baseline'] == pytest.approx(1 / (1 + 2 + 4))
  assert weighed['value'] == pytest.approx(4 / (1 + 2 + 4))


def test_a_report_of_two_files(run_main, two_systems, tmp_path):
  page, text = tmp_path / 'new' / 'r.html', tmp_path / 'r.md'
  latex = tmp_path / 'r.tex'
  files = f'--output={page}', f'--markdown={text}', f'--latex={latex}'
  flags = '--names=A,<B>', '--metrics=R@3,P@1', '--latex_decimals=2'
  done = run_main('report', *two_systems, *files, *flags)
  assert done.stdout.splitlines() == [str(page), str(text), str(latex)]
  html = page.read_text()
  assert '<title>A, &lt;B&gt;</title>' in html
  assert f'xjax report {two_systems[0]}' in html
  assert '| slice | system | R@3 | P@1 |' in text.read_text()
  assert 'all 3 labels & A & 100.00 & 66.67 \\\\' in latex.read_text()
  assert [path.name for path in page.parent.iterdir()] == ['r.html']


def test_scores_of_columns_take_gold_and_counts_of_ids(
  run_main, two_systems, tmp_path
):
  matrix = scipy.sparse.csr_matrix(np.tile([1.0, 3.0, 2.0], (4, 1)))
  scipy.sparse.save_npz(tmp_path / 'scores.npz', matrix)
  order = tmp_path / 'order.txt'
  order.write_text('x\ny\nz\n')
  page, text = tmp_path / 'r.html', tmp_path / 'r.md'
  flags = '--ks=2', '--propensity=0.6,2.6', '--protocol=all', '--ci'
  run_main(
    *('report', two_systems[0], tmp_path / 'scores.npz'),
    f'--label_order={order}',
    *(*flags, '--replicates=20', f'--output={page}', f'--markdown={text}'),
  )
  found = text.read_text()
  assert 'Propensities: A 0.6, B 2.6.' in found
  assert '| slice | system | P@2 |' in found and 'protocol pyxclib' in found
  number = r'0\.\d{3}'
  assert re.search(rf'\| all .* \| one \| {number} ± {number} \|', found)
