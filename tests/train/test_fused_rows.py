"""How far a step of label rows goes, and by which random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xjax.core.rng import step_key
from xjax.networks.rows.update import (
  SGD,
  AdagradRow,
  ByOptimizer,
  FusedAdagrad,
  FusedSGD,
)
from xjax.train.neural_train import NeuralTrain, Schedule
from xjax.train.optimizer import FREQUENT, fused_rows

PLACES = [(seed, step) for seed in range(4) for step in range(8)]
COUNTS = np.array([0, FREQUENT - 1, FREQUENT, 9 * FREQUENT])


def test_rules():
  assert fused_rows(NeuralTrain(rows=ByOptimizer()), COUNTS) is None
  sgd = fused_rows(NeuralTrain(rows=FusedSGD(momentum=0.7)), COUNTS)
  assert sgd.rule == SGD(0.7)
  adagrad = fused_rows(NeuralTrain(rows=FusedAdagrad(eps=1e-3)), COUNTS)
  assert adagrad.rule == AdagradRow(1e-3)
  assert sgd.compensated.tolist() == [False, False, True, True]


def test_pace_follows_the_schedule_from_its_own_peak():
  config = NeuralTrain(
    learning_rate=1e-3,
    steps=6,
    warmup=2,
    schedule=Schedule.LINEAR,
    rows=FusedSGD(learning_rate=0.6, weight_decay=0.25),
  )
  rows = fused_rows(config, COUNTS)
  paces = [rows.pace(jnp.int32(i), jax.random.key(0)) for i in range(7)]
  rates = [float(pace.rate) for pace in paces]
  expected = [0.2, 0.4, 0.6, 0.45, 0.3, 0.15, 0.0]
  assert rates == pytest.approx(expected, abs=1e-7)
  assert {float(pace.decay) for pace in paces} == {0.25}


def test_keys_are_of_the_given_one_alone():
  rows = fused_rows(NeuralTrain(rows=FusedSGD()), COUNTS)
  keys = [step_key(jax.random.key(seed), jnp.int32(i)) for seed, i in PLACES]
  drawn = [int(rows.pace(jnp.int32(0), key).key) for key in keys]
  again = [int(rows.pace(jnp.int32(5), key).key) for key in keys]
  assert drawn == again
  assert len(set(drawn)) == len(PLACES)
