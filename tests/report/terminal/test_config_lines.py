"""The list of configs, as `xjax configs` prints it."""

from xjax.report.terminal.config_lines import configs_text
from xjax.run.named_configs import shipped_configs


def test_each_config_is_a_line_and_variants_follow():
  configs = shipped_configs()
  lines = configs_text(list(configs.values())).splitlines()
  assert lines[0].split() == ['config', 'trains', 'data', 'hardware']
  first, second = (
    next(line for line in lines if line.startswith(f'{name} '))
    for name in ('quickstart', 'xc_plt')
  )
  assert 'a small model on a synthetic corpus' in first
  assert second.split('  ')[-1] == 'two CPU cores'
  assert 'feature files of the XC repository' in second
  # Each config has a summary, its data and its hardware.
  for name, line in zip(configs, lines[1:]):
    assert line.startswith(f'{name} ')
    assert len([cell for cell in line.split('  ') if cell.strip()]) == 4
  variants = '  quickstart: bigru_lwan, exact_match, bigru_att, han, '
  assert any(line.startswith(variants) for line in lines)
