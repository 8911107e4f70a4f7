"""slurm.sh and slurm.sbatch, beside a SLURM that notes its calls."""

import pathlib

import pytest

from tests.tpu_scripts.conftest import kill


@pytest.fixture(autouse=True)
def settings(monkeypatch):
  monkeypatch.setenv('NAME', 'mine')
  monkeypatch.setenv('OPTIONS', '--nodes=2  --time=8:00:00')


@pytest.mark.parametrize(
  ('codes', 'code', 'times'),
  [((75, 143, 0), 0, 3), ((75, 1, 0), 1, 2), ((134,) * 5, 134, 4)],
)
def test_a_job_goes_back_into_the_queue(
  codes, code, times, cluster, job, run, tmp_path
):
  job.ends_with(*codes)
  assert run('slurm.sh', *job.words) == code
  assert job.starts == ['here --workdir=a b --multihost'] * times
  (submitted,) = cluster.calls('sbatch ')
  assert submitted.startswith('sbatch --parsable --job-name=mine --comment=')
  assert (
    f' {job.spelled} --output=mine.txt --nodes=2 --time=8:00:00 ' in submitted
  )
  assert len(cluster.calls('srun ')) == times
  assert len(cluster.calls('scontrol requeue 100')) == times - 1
  printed = (tmp_path / 'mine.txt').read_text().splitlines()
  assert [x for x in printed if 'out' in x] == [
    f'out {c}' for c in codes[:times]
  ]


def test_the_file_tells_slurm_what_it_needs():
  file = pathlib.Path(__file__).parents[2] / 'tpu_scripts' / 'slurm.sbatch'
  options = [
    line.split()[1]
    for line in file.read_text().splitlines()
    if line.startswith('#SBATCH ')
  ]
  assert {'--requeue', '--signal=TERM@120', '--open-mode=append'} < set(options)


def test_a_command_may_be_longer_than_a_comment(cluster, job, run):
  job.ends_with(0)
  assert run('slurm.sh', *job.words, 'é' * 2000) == 0


def test_again_it_finds_the_job(
  cluster, job, begin, run, wait_for, said, at_work
):
  job.ends_with('wait')
  kill(at_work('slurm.sh'))
  looks = len(cluster.calls('show job'))
  second = begin('slurm.sh', *job.words)
  wait_for(lambda: len(cluster.calls('show job')) > looks)
  assert run('slurm.sh', *job.words, 'other') == 1
  assert f'error: mine: job 100 runs another command: {job.spelled}\n' == said()
  second.terminate()
  assert second.wait(60) == 75
  assert len(cluster.calls('sbatch ')) == 1 and len(job.starts) == 1


def test_asked_to_leave_it_saves_and_does_not_come_back(
  cluster, job, tmp_path, at_work, stumble
):
  stumble('scancel', 'TERM', 1)
  job.ends_with('wait', 0)
  process = at_work('slurm.sh')
  process.terminate()
  assert process.wait(60) == 75
  assert 'saved' in (tmp_path / 'mine.txt').read_text()
  assert cluster.calls('scancel') == ['scancel --signal=TERM 100']
  assert len(job.starts) == 1
