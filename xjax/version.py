"""Holds the version of xjax."""

VERSION = '0.1.0'
