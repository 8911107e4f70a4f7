# shellcheck shell=bash
# Sets what XLA reads from the environment, for runs on GPUs. What you have set
# wins: of equal flags, the last one counts. XLA ends a program at a flag that
# it does not know.
#
# XLA_FLAGS                 Collectives overlap with other work [1, 2].
# XLA_CLIENT_MEM_FRACTION   Arrays may take 0.9 of a GPU's memory, as plans
#                           assume; JAX's own default is 0.75 [3].
# LIBTPU_INIT_ARGS          Nothing on TPUs: libtpu 0.0.52 has by default what
#                           others set for overlap, also between slices [4].
#
# [1] docs.jax.dev/en/latest/gpu_performance_tips.html
# [2] docs.nvidia.com/jax-toolbox/environment-variables
# [3] docs.jax.dev/en/latest/201/gpu-memory.html
# [4] github.com/AI-Hypercomputer/maxtext, benchmarks/xla_flags_library.py
set -euo pipefail

overlap=--xla_gpu_enable_latency_hiding_scheduler=true
export XLA_FLAGS="$overlap${XLA_FLAGS:+ $XLA_FLAGS}"
: "${XLA_CLIENT_MEM_FRACTION:=${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.9}}"
export XLA_CLIENT_MEM_FRACTION
unset XLA_PYTHON_CLIENT_MEM_FRACTION # JAX refuses the old name beside the new
