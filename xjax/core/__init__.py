"""Provides types, meshes, start-up, random numbers and files to all of xjax."""
