"""The report from the command line: files, messages, exit codes."""

from collections.abc import Callable
import functools
import pathlib
import re

import numpy as np
import pytest
import scipy.sparse

from xjax.core.types import Ragged, ScoreKind
from xjax.judge.label_lists import LabelLists
from xjax.judge.predictions import Predictions


@pytest.fixture
def run(run_main) -> Callable:
  return functools.partial(run_main, 'report')


@pytest.fixture(scope='module')
def files(tmp_path_factory) -> list[pathlib.Path]:
  """Predictions of two systems."""
  folder = tmp_path_factory.mktemp('report')
  scores = np.tile(np.array([3, 1, -1], np.float32), (4, 1))
  for name, ids in (('one', [0, 1, 2]), ('two', [2, 1, 0])):
    Predictions(
      score_kind=ScoreKind.LOGIT,
      n_scored=3,
      n_train=9,
      doc_ids=tuple('abcd'),
      labels=('x', 'y', 'z'),
      train_counts=np.array([9, 3, 0], np.int32),
      lists={
        'all': LabelLists(np.tile(np.array(ids, np.int32), (4, 1)), scores)
      },
      gold=Ragged.of([[0], [0, 1], [2], []]),
    ).save(folder / f'{name}.npz')
  return [folder / 'one.npz', folder / 'two.npz']


def test_a_report_of_two_files(run, files, tmp_path):
  page, text = tmp_path / 'new' / 'r.html', tmp_path / 'r.md'
  latex = tmp_path / 'r.tex'
  done = run(
    *(*files, f'--output={page}', f'--markdown={text}', f'--latex={latex}'),
    *('--names=A,<B>', '--metrics=R@3,P@1', '--latex_decimals=2'),
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.splitlines() == [str(page), str(text), str(latex)]
  html = page.read_text()
  assert '<title>A, &lt;B&gt;</title>' in html
  assert f'xjax report {files[0]}' in html
  assert '| slice | system | R@3 | P@1 |' in text.read_text()
  assert 'all 3 labels & A & 100.00 & 66.67 \\\\' in latex.read_text()
  assert [path.name for path in page.parent.iterdir()] == ['r.html']


def test_scores_and_gold_of_columns_beside_ids(run, files, tmp_path):
  """Which also lends training counts; judged as the flags say."""
  matrix = scipy.sparse.csr_matrix(np.tile([1.0, 3.0, 2.0], (4, 1)))
  scipy.sparse.save_npz(tmp_path / 'scores.npz', matrix)
  gold = tmp_path / 'tst.txt'
  gold.write_text('4 3\n0:1\n0:1 1:1\n2:1\n\n')
  page, text = tmp_path / 'r.html', tmp_path / 'r.md'
  flags = '--ks=2', '--propensity=0.6,2.6', '--protocol=all', '--ci'
  done = run(
    *(files[0], tmp_path / 'scores.npz', f'--gold={gold}', *flags),
    *('--replicates=20', f'--output={page}', f'--markdown={text}'),
  )
  assert done.returncode == 0, done.stderr
  found = text.read_text()
  assert 'scores has no ids, so the rows and columns were' in found
  assert 'Propensities: A 0.6, B 2.6.' in found
  assert '| slice | system | P@2 |' in found and 'protocol pyxclib' in found
  number = r'0\.\d{3}'
  assert re.search(rf'\| all .* \| one \| {number} ± {number} \|', found)


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((), 'give at least one system'),
    (('{one}',), '--output is missing; give the file'),
    (('{one}', 'gone.npz', '--output={out}'), 'gone.npz: neither a workdir'),
    (('{one}', '--replicates=9', '--output={out}'), 'works only with --ci'),
    (('{one}', '--protocol=mine', '--output={out}'), "'mine' is unknown"),
    (('{one}', '--metrics=P@7', '--output={out}'), "no system has 'P@7'"),
  ],
)
def test_mistakes_are_one_message(run, files, tmp_path, arguments, message):
  out = tmp_path / 'r.html'
  done = run(*(a.format(one=files[0], out=out) for a in arguments))
  assert done.returncode == 1
  assert done.stderr.startswith('error: ') and message in done.stderr
  assert not out.exists()
