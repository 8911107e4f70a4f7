"""Lets tests import the scripts of benchmarks/, as the scripts do."""

import sys

from tests.docs.pages import ROOT

# Last, so that no script hides a module of the same name.
sys.path.append(str(ROOT / 'benchmarks'))
