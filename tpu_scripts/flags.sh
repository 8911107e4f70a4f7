# shellcheck shell=bash
# Sets what XLA reads from the environment, for runs on GPUs. What you have set
# wins: of equal flags, the last one counts. XLA ends a program at a flag that
# it does not know; tests/tpu_scripts/test_files.py gives these to its compiler.
#
# variable                 value                    sources
# XLA_FLAGS                collectives overlap      docs.jax.dev/en/latest/gpu_performance_tips.html,
#                          with other work          docs.nvidia.com/jax-toolbox/environment-variables
# XLA_CLIENT_MEM_FRACTION  share of a GPU's memory  docs.jax.dev/en/latest/201/gpu-memory.html
#                          for arrays: 0.9, as plans
#                          count on; JAX has 0.75
# LIBTPU_INIT_ARGS         nothing on TPUs: libtpu 0.0.52 has by default what MaxText
#                          sets for overlap, also between slices
#                          (AI-Hypercomputer/maxtext, benchmarks/xla_flags_library.py)
set -euo pipefail

overlap=--xla_gpu_enable_latency_hiding_scheduler=true
export XLA_FLAGS="$overlap${XLA_FLAGS:+ $XLA_FLAGS}"
: "${XLA_CLIENT_MEM_FRACTION:=${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.9}}"
export XLA_CLIENT_MEM_FRACTION
unset XLA_PYTHON_CLIENT_MEM_FRACTION # JAX refuses the old name beside the new
