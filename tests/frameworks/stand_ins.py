"""Modules that stand in for torch, which is several GB, and for what a framework's configuration imports and does not use: so
that its parsers and config classes are loaded alone."""

import importlib.abc
import importlib.machinery
import sys
import types


class AnyClass(type):
    """A class with every attribute, and each of them a class like it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return any_class(name)


def any_class(name):
    def call(self, *arguments, **_):
        return arguments[0] if arguments and callable(arguments[0]) else self  # of a decorator: what it decorates

    def get(self, attribute):
        return any_class(attribute)

    return AnyClass(name, (), {"__init__": lambda self, *a, **k: None, "__call__": call, "__getattr__": get})


class dtype:
    pass


class StandIn(types.ModuleType):
    __path__ = []
    __version__ = "2.8.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__name__ == "torch" and name == "dtype":
            return dtype
        if self.__name__ == "torch" and name.rstrip("0123456789") in ("float", "bfloat", "int"):
            return dtype()
        return any_class(name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path, target=None):
        if any(name == one or name.startswith(one + ".") for one in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


def stand_in_for(*names):
    """From here on modules of these names, and what is below them, are stand-ins."""
    sys.meta_path.insert(0, Finder(names))


def bare_package(name, folder, **attributes):
    """The package without what its __init__.py does."""
    package = types.ModuleType(name)
    package.__path__ = [str(folder)]
    vars(package).update(attributes)
    sys.modules[name] = package
    return package
