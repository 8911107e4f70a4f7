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


# GB, GB/s, TFLOP/s of bfloat16 with sparsity (which doubles it) and of float32,
# GB/s of NVLink in both directions together, as on NVIDIA's data sheets.
SHEETS = {
  'a100-40': (40, 1555, 624, 19.5, 600),
  'a100-80': (80, 2039, 624, 19.5, 600),
  'h100-80': (80, 3350, 1979, 67, 900),
  'h200': (141, 4800, 1979, 67, 900),
}
# GiB, GB/s, TFLOP/s of bfloat16, Gbit/s to neighbours, as Google has them.
TPU_SHEETS = {
  'v4': (32, 1228, 275, 2400),
  'v5e': (16, 819, 197, 1600),
  'v5p': (95, 2765, 459, 4800),
}


@pytest.mark.parametrize('name', SHEETS)
def test_gpus_are_those_of_data_sheets(name):
  chip, (memory, bandwidth, sparse, float32, nvlink) = CHIPS[name], SHEETS[name]
  assert (chip.memory, chip.bandwidth) == (memory * 1e9, bandwidth * 1e9)
  assert chip.peak(1) == chip.peak(2)
  assert 2 * chip.peak(2) == pytest.approx(sparse * 1e12, rel=1e-3)
  assert chip.peak(4) == pytest.approx(float32 * 1e12)
  assert (2 * chip.network, chip.neighbours) == (nvlink * 1e9, 8)


@pytest.mark.parametrize('name', TPU_SHEETS)
def test_tpus_are_those_of_data_sheets(name):
  chip, (memory, bandwidth, peak, network) = CHIPS[name], TPU_SHEETS[name]
  assert (chip.memory, chip.bandwidth) == (memory * 2**30, bandwidth * 1e9)
  assert chip.peak(2) == pytest.approx(peak * 1e12)
  assert chip.network == network * 1e9 / 8


@pytest.mark.parametrize(
  ('kind', 'name'),
  [
    ('NVIDIA H200', 'h200'),
    ('NVIDIA H100 80GB HBM3', 'h100-80'),
    ('NVIDIA A100-SXM4-40GB', 'a100-40'),
    ('NVIDIA A100-SXM4-80GB', 'a100-80'),
    ('NVIDIA A10', 'a10'),
    ('NVIDIA L4', 'l4'),
    ('Tesla V100-SXM2-16GB', 'v100-16'),
    ('Tesla V100-SXM2-32GB', 'v100-32'),
    ('TPU v4', 'v4'),
    ('TPU v5 lite', 'v5e'),
    ('TPU v5', 'v5p'),
    ('TPU v6 lite', 'v6e'),
  ],
)
def test_this_machines_device(monkeypatch, kind, name):
  on(monkeypatch, 'tpu' if kind.startswith('TPU') else 'gpu', kind)
  assert chip_named('') is CHIPS[name]


@pytest.mark.parametrize(
  'kind',
  [
    'NVIDIA L40',
    'NVIDIA A10G',
    'NVIDIA H100 PCIe',
    'NVIDIA H100 NVL',
    'NVIDIA H100 80GB HBM3 MIG 1g.10gb',
    'NVIDIA H200 NVL',
    'NVIDIA A100 80GB PCIe',
    'NVIDIA A100-PCIE-40GB',
    'Tesla V100-PCIE-32GB',
    'TPU v4 lite',
    'Radeon',
  ],
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
