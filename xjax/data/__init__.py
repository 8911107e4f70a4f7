"""Corpora, label spaces, tokens, batches."""
