"""The table of chips, and this machine's own."""

import jax
import pytest

from xjax.core import chips
from xjax.core.chips import CHIPS, Platform, chip_named
from xjax.core.errors import ConfigError


class Device:
  def __init__(self, kind):
    self.device_kind = kind


def on(monkeypatch, backend, kind):
  monkeypatch.setattr(jax, 'default_backend', lambda: backend)
  monkeypatch.setattr(jax, 'devices', lambda: [Device(kind)])


def test_names_are_keys_and_rates_are_rates():
  for name, chip in CHIPS.items():
    assert chip.name == name
    assert 8e9 < chip.memory < 1e12
    assert 1e10 < chip.bandwidth < chip.float32 <= chip.bfloat16 < 1e16
    assert (chip.network > 0) == (chip.neighbours > 1)
    assert chip.peak(1) == chip.peak(2) == chip.bfloat16
    assert chip.peak(4) == chip.float32


@pytest.mark.parametrize(
  ('kind', 'name'),
  [
    ('NVIDIA H200', 'h200'),
    ('NVIDIA H100 80GB HBM3', 'h100-80'),
    ('NVIDIA A100-SXM4-40GB', 'a100-40'),
    ('NVIDIA A100-SXM4-80GB', 'a100-80'),
    ('NVIDIA A10', 'a10'),
    ('Tesla V100-SXM2-16GB', 'v100-16'),
    ('Tesla V100-SXM2-32GB', 'v100-32'),
  ],
)
def test_this_machines_gpu(monkeypatch, kind, name):
  on(monkeypatch, 'gpu', kind)
  assert chip_named('') is CHIPS[name]


@pytest.mark.parametrize(
  ('kind', 'name'),
  [('TPU v4', 'v4'), ('TPU v5 lite', 'v5e'), ('TPU v5', 'v5p')],
)
def test_this_machines_tpu(monkeypatch, kind, name):
  on(monkeypatch, 'tpu', kind)
  assert chip_named('') is CHIPS[name]


@pytest.mark.parametrize('kind', ['NVIDIA L40', 'NVIDIA A10G', 'Radeon'])
def test_a_device_that_is_not_known_is_not_taken_for_another(monkeypatch, kind):
  on(monkeypatch, 'gpu', kind)
  with pytest.raises(ConfigError, match=f'{kind}.*known: laptop'):
    chip_named('')


def test_this_machines_cpu(monkeypatch):
  monkeypatch.setattr(chips.os, 'cpu_count', lambda: 2)
  chip = chip_named('')
  assert chip.platform is Platform.CPU
  assert chip.float32 == 2 * 2 * 16 * 3e9
  assert chip.memory > 1e8


def test_another_name_is_refused():
  with pytest.raises(ConfigError, match='--chip=abacus: must be one of laptop'):
    chip_named('abacus')
