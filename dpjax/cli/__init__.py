"""The programs of the library; the only place in it that knows of flags.

`commands` names them and starts one; each is a module with a function `main`.
"""
