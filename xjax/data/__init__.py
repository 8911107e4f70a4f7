"""Reads corpora and makes label spaces, tokens and batches from them."""
