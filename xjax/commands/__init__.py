"""Contains the sub-commands of `xjax`, one per module.

A command's module defines flags when it is run, and has a function main() for
the work, with the arguments that are not flags if it takes some. It imports the
rest of the library only in main(), so that --help is fast and a command loads
only what it uses.
"""
