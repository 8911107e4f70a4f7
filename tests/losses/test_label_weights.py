import numpy as np
import pytest

from xjax.losses.label_weights import class_balanced, unbiased_positives


def test_class_balanced_golden():
  # (1 - b) / (1 - b^n) with b = 1/2: 1 for n = 1, 2/3 for n = 2, 4/7 for 3.
  found = class_balanced(np.array([1, 2, 3]), 0.5)
  expected = np.array([1, 2 / 3, 4 / 7])
  np.testing.assert_allclose(found, expected / expected.mean(), rtol=1e-12)


def test_the_mean_is_over_labels_with_documents():
  found = class_balanced(np.array([4, 0, 100, 1, 0]), 0.9)
  assert found[[0, 2, 3]].mean() == pytest.approx(1)
  # The others weigh as if they had one document.
  np.testing.assert_array_equal(found[[1, 4]], found[3])
  assert found[2] < found[0] < found[3]


def test_class_balanced_ends():
  counts = np.array([1, 10, 1000])
  np.testing.assert_allclose(class_balanced(counts, 0.0), 1)
  found = class_balanced(counts, 1 - 1e-9)
  np.testing.assert_allclose(found * counts / found[0], 1, rtol=1e-5)
  np.testing.assert_array_equal(class_balanced(np.zeros(2), 0.9), 1)


def test_unbiased_positives_golden():
  found = unbiased_positives(np.array([1.0, 2.0, 5.5]))
  np.testing.assert_array_equal(found, [1, 3, 10])
