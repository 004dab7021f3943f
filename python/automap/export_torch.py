"""automap-export-torch (`automap export-torch`): the training step of a PyTorch module as HLO, by automap.torch."""

import argparse
import contextlib
import importlib.util
import os
import sys

from automap.errors import Error


def _built(path, name, with_weights):
    """What the function of a file returns: (module, inputs, optimizer), and a loss where there is one."""
    import torch

    from automap.torch import first_line

    spec = importlib.util.spec_from_file_location("automap_exported", path)
    if spec is None or not os.path.isfile(path):
        raise Error(f"{path}: No such file of Python")
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    loaded = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(loaded)
        function = getattr(loaded, name, None)
        if not callable(function):
            raise Error(f"{path} has no function {name}, which returns (module, inputs, optimizer)")
        with contextlib.nullcontext() if with_weights else torch.device("meta"):
            built = function()
    except Error:
        raise
    except Exception as error:
        raise Error(f"{path}: {first_line(error)}" + ("" if with_weights else "; where it reads values of weights, --with-weights")) from error
    if not isinstance(built, tuple) or len(built) not in (3, 4):
        raise Error(f"{path}: {name} returns a {type(built).__name__}, expected (module, inputs, optimizer) or (module, inputs, optimizer, loss)")
    return built


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="automap-export-torch", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Writes the training step of a PyTorch module as HLO (with a Python that has torch, torchax and jax).",
        epilog="""example:
  automap-export-torch train.py:build -o step.hlo && automap-infer step.hlo --cluster h100-4x8 --batch 256

build() returns (module, inputs, optimizer) or (module, inputs, optimizer, loss), as automap.torch.step takes them. It is called
where torch makes tensors without values (torch.device("meta")), so that a model of any size is exported.
Exit codes: 0; 2: wrong usage, no torchax; 3: the step cannot be traced, the output cannot be written.""")
    parser.add_argument("input", metavar="FILE[:FUNCTION]", help="a file of Python, and its function (build)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where the HLO text goes")
    parser.add_argument("--with-weights", action="store_true", help="make the weights, for modules that read values while they are built")
    asked = parser.parse_args(argv)
    path, _, name = asked.input.rpartition(":") if ":" in asked.input else (asked.input, "", "build")
    try:
        if os.path.exists(asked.output) and os.path.exists(path) and os.path.samefile(path, asked.output):
            raise Error(f"-o {asked.output} would replace what is read; give -o another file", 2)
        from automap.torch import export_step  # An Error where there is no torch.

        module, inputs, optimizer, *loss = _built(path, name, asked.with_weights)
        export_step(module, inputs, optimizer, asked.output, *loss)
    except Error as error:
        print(f"automap-export-torch: error: {error}", file=sys.stderr)
        return error.exit_code or 3
    except OSError as error:
        print(f"automap-export-torch: error: {error.filename or asked.output}: {error.strerror}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
