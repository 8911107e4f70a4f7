"""xjax: extreme multi-label text classification in JAX."""
