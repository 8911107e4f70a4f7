"""Reads corpora, and makes label spaces and token ids from them."""
