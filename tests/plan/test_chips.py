"""The table of chips, and this machine's own."""

import types

import jax
import pytest

from xjax.core.errors import ConfigError
from xjax.plan import chips
from xjax.plan.chips import CHIPS, Platform, chip_named


def on(monkeypatch, backend, kind):
  device = types.SimpleNamespace(device_kind=kind)
  monkeypatch.setattr(jax, 'default_backend', lambda: backend)
  monkeypatch.setattr(jax, 'devices', lambda: [device])


def test_chips_are_those_of_their_data_sheets():
  chip = CHIPS['h200']  # GB, GB/s, TFLOP/s with sparsity, which doubles it
  assert (chip.memory, chip.bandwidth) == (141e9, 4800e9)
  assert chip.peak(1) == chip.peak(2) == pytest.approx(1979e12 / 2, rel=1e-3)
  assert chip.peak(4) == pytest.approx(67e12)
  chip = CHIPS['v5e']  # GiB, GB/s, TFLOP/s of bfloat16
  assert (chip.memory, chip.bandwidth) == (16 * 2**30, 819e9)
  assert chip.peak(2) == pytest.approx(197e12)


@pytest.mark.parametrize(
  ('kind', 'name'),
  [
    ('NVIDIA H100 80GB HBM3', 'h100-80'),
    ('NVIDIA A10', 'a10'),
    ('TPU v5 lite', 'v5e'),
    ('TPU v5', 'v5p'),
  ],
)
def test_this_machines_device(monkeypatch, kind, name):
  on(monkeypatch, 'tpu' if kind.startswith('TPU') else 'gpu', kind)
  assert chip_named('') is CHIPS[name]


@pytest.mark.parametrize(
  'kind', ['NVIDIA A10G', 'NVIDIA H100 80GB HBM3 MIG 1g.10gb', 'TPU v4 lite']
)
def test_a_device_that_is_not_known_is_not_taken_for_another(monkeypatch, kind):
  on(monkeypatch, 'gpu', kind)
  with pytest.raises(ConfigError, match=f'{kind}.*not known; .* chips: laptop'):
    chip_named('')


def test_this_machines_cpu(monkeypatch):
  monkeypatch.setattr(chips.os, 'cpu_count', lambda: 2)
  chip = chip_named('')
  assert chip.platform is Platform.CPU
  assert chip.float32 == 2 * 2 * 16 * 3e9
  assert chip.memory > 1e8
