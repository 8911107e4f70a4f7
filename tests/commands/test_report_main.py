"""The report from the command line: files, messages, exit codes."""

from collections.abc import Callable
import functools
import re

import numpy as np
import pytest
import scipy.sparse


@pytest.fixture
def run(run_main) -> Callable:
  return functools.partial(run_main, 'report')


def test_a_report_of_two_files(run, two_systems, tmp_path):
  page, text = tmp_path / 'new' / 'r.html', tmp_path / 'r.md'
  latex = tmp_path / 'r.tex'
  done = run(
    *(
      *two_systems,
      f'--output={page}',
      f'--markdown={text}',
      f'--latex={latex}',
    ),
    *('--names=A,<B>', '--metrics=R@3,P@1', '--latex_decimals=2'),
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines() == [str(page), str(text), str(latex)]
  html = page.read_text()
  assert '<title>A, &lt;B&gt;</title>' in html
  assert f'xjax report {two_systems[0]}' in html
  assert '| slice | system | R@3 | P@1 |' in text.read_text()
  assert 'all 3 labels & A & 100.00 & 66.67 \\\\' in latex.read_text()
  assert [path.name for path in page.parent.iterdir()] == ['r.html']


def test_scores_and_gold_of_columns_beside_ids(run, two_systems, tmp_path):
  """Which also lends training counts; judged as the flags say."""
  matrix = scipy.sparse.csr_matrix(np.tile([1.0, 3.0, 2.0], (4, 1)))
  scipy.sparse.save_npz(tmp_path / 'scores.npz', matrix)
  gold = tmp_path / 'tst.txt'
  gold.write_text('4 3\n0:1\n0:1 1:1\n2:1\n\n')
  page, text = tmp_path / 'r.html', tmp_path / 'r.md'
  flags = '--ks=2', '--propensity=0.6,2.6', '--protocol=all', '--ci'
  done = run(
    *(two_systems[0], tmp_path / 'scores.npz', f'--gold={gold}', *flags),
    *('--replicates=20', f'--output={page}', f'--markdown={text}'),
  )
  assert done.returncode == 0, done.stderr
  found = text.read_text()
  assert 'scores has no ids, so the rows and columns were' in found
  assert 'Propensities: A 0.6, B 2.6.' in found
  assert '| slice | system | P@2 |' in found and 'protocol pyxclib' in found
  number = r'0\.\d{3}'
  assert re.search(rf'\| all .* \| one \| {number} ± {number} \|', found)
