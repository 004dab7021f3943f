"""StableHLO as HLO: a module as text, bytecode or a file of jax.export, made a binary HloModuleProto by jaxlib.

automap-from-stablehlo (`automap from-stablehlo`) is the command; the programs call it for models that are StableHLO. Names of
layers are the locations of the operations.
"""

import argparse
import gzip
import os
import re
import sys

from automap.errors import Error
from automap.planning import write_whole

BYTECODE = b"ML\xefR"
MODULE_FIELD = 30  # of the table that jax.export writes; common/hlo/stablehlo.cpp reads it alike
EXPORT = 'jax.jit(step).lower(*arguments).as_text(debug_info=True)'


def _number(data, place, size, signed=False):
    if place < 0 or place + size > len(data):
        return None
    return int.from_bytes(data[place:place + size], "little", signed=signed)


def _of_export(data):
    """The bytecode inside of a file of jax.export; None: it is none. b"": it is cut short."""
    table = _number(data, 0, 4)
    back = None if table is None else _number(data, table, 4, signed=True)
    fields = None if back is None else table - back
    size = None if fields is None else _number(data, fields, 2)
    if size is None or size <= MODULE_FIELD:
        return None
    field = _number(data, fields + MODULE_FIELD, 2)
    array = _number(data, table + field, 4) if field else None
    begin = None if array is None else table + field + array
    length = None if begin is None else _number(data, begin, 4)
    if length is None or data[begin + 4:begin + 8] != BYTECODE:
        return None
    return data[begin + 4:begin + 4 + length] if begin + 4 + length <= len(data) else b""


def _is_text(data):
    text = data[:4096].decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    while text.startswith("//"):
        text = text.partition("\n")[2].lstrip()
    return re.match(r'#\w+ = |#loc|"?builtin\.module|func\.func|module\s*(@|\{|attributes)', text) is not None


def is_stablehlo(data):
    """True if these bytes are a module of MLIR: text, bytecode, or a file of jax.export."""
    return data.startswith(BYTECODE) or _of_export(data) is not None or _is_text(data)


def hlo_of(data, name):
    """A binary HloModuleProto of a module. `name` of the file is for errors; Error says what is wrong and what to do about it."""
    try:
        from jaxlib.mlir import ir
        from jax._src.interpreters import mlir
        from jax._src.lib import _jax
    except ImportError as error:
        raise Error(f"{sys.executable} has no jaxlib ({error}); install jax 0.10", 2) from None
    inside = _of_export(data)
    if inside == b"":
        raise Error(f"{name}: the file of jax.export is cut short; write it again")
    with mlir.make_ir_context():
        module = _parsed(ir, _jax, data if inside is None else inside, name)
        _check_main(ir, module, name)
        bytecode = mlir.module_to_bytecode(module)
    try:
        computation = _jax.mlir.mlir_module_to_xla_computation(bytecode, use_tuple_args=False, return_tuple=False)
    except Exception as error:  # Of several types, in versions of jaxlib.
        raise Error(f"{name}: {_why(error)}; HLO cannot say this operation, export the step with shapes of whole numbers and "
                    "without operations of your own") from None
    return computation.as_serialized_hlo_module_proto()


def _why(error):
    """The first line that says what is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "error:" in line), lines[0] if lines else type(error).__name__)
    return said.rpartition("error: ")[2]


def _parsed(ir, _jax, data, name):
    try:
        if data.startswith(BYTECODE):
            # Of VHLO; modules that were written as StableHLO itself are read as they are.
            return _jax.mlir.deserialize_portable_artifact(data) if b"StableHLO_v" in data[:32] else ir.Module.parse(data)
        return ir.Module.parse(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise Error(f"{name}: the text is not UTF-8 ({error.reason} at byte {error.start})") from None
    except Exception as error:  # MLIRError, and of bytecode XlaRuntimeError or ValueError.
        why = _why(error)
        dialect = _unknown_dialect(str(error), data)
        if dialect:
            raise Error(f"{name}: the module has operations of the dialect {dialect}, expected StableHLO; lower it to StableHLO first, "
                        f"or export it so: {EXPORT}") from None
        raise Error(f"{name}: no module can be read of this MLIR: {why}; it may be cut short, or of a newer version than this "
                    f"jaxlib reads: export it again, {EXPORT}") from None


def _unknown_dialect(said, data):
    """The dialect that MLIR says it does not know, by name or by the place of the operation; "": it says something else."""
    named = re.search(r"[Dd]ialect [`'\"]?(\w+)[`'\"]? not found|unregistered operation '(\w+)\.", said)
    if named:
        return named[1] or named[2]
    place = re.search(r":(\d+):(\d+): .*unregistered dialect", said)
    if not place or data.startswith(BYTECODE):
        return ""
    line, column = int(place[1]) - 1, int(place[2]) - 1
    lines = data.decode("utf-8", "replace").splitlines()
    # The place is the operation's name, or what stands behind it.
    before = [one[1] for one in re.finditer(r'(?<![\w.%@#!<])"?(\w+)\.\w', lines[line]) if one.start() <= column] if line < len(lines) else []
    return before[-1] if before else ""


def _check_main(ir, module, name):
    """A module is run from its main: the function of that name, or the only one that others may call."""
    functions = {}
    for operation in module.body.operations:
        kind = operation.operation.name
        if kind == "func.func":
            functions[ir.StringAttr(operation.operation.attributes["sym_name"]).value
                      if "sym_name" in operation.operation.attributes else "?"] = operation.operation
        if kind == "builtin.module":
            raise Error(f"{name}: there is a module inside of the module; give the one with the step alone")
    if not functions:
        raise Error(f"{name}: there is no function in the module, expected one called main")
    if "main" not in functions:
        public = [of for of, function in functions.items() if "sym_visibility" not in function.attributes
                  or ir.StringAttr(function.attributes["sym_visibility"]).value == "public"]
        if len(public) != 1:
            shown = ", ".join(public[:5]) + (", ..." if len(public) > 5 else "")
            raise Error(f"{name}: which of {len(public)} functions is the step ({shown})? Call it main, and make the others private")
        functions[public[0]].attributes["sym_name"] = ir.StringAttr.get("main")
        functions["main"] = functions[public[0]]
    main = functions["main"]
    for kind in ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).inputs:
        if "?" in str(kind):
            raise Error(f"{name}: an input of main is {kind}, which has a dimension of no size; export the step with the sizes that "
                        "it will be trained with")
    if not main.regions[0].blocks:
        raise Error(f"{name}: main is declared and has no operations")


def _output_alone():
    """A descriptor of the standard output, which from here on is the standard error to all others: libraries print while they are
    imported, and what is read of the output has to be the module alone."""
    if sys.stdout is None:
        raise Error("standard output is closed")
    output = os.dup(1)
    os.dup2(2, 1)
    return output


def _write(path, output, data):
    if path == "-":
        try:
            with open(output, "wb") as file:
                file.write(data)
        except OSError as error:
            raise Error(f"standard output: {error.strerror}") from None
    else:
        write_whole(path, data)


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="automap-from-stablehlo", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Makes HLO of StableHLO (text, bytecode, files of jax.export), for Pythons that have jaxlib.",
        epilog="""example:
  automap-from-stablehlo step.mlir -o step.pb && automap-infer step.pb --cluster h100-4x8

Programs that take a model do this themselves where AUTOMAP_JAX_PYTHON names a Python with jax.
Exit codes: 0; 2: wrong usage, no jaxlib; 3: the module cannot be read or said in HLO, the output cannot be written.""")
    parser.add_argument("input", metavar="FILE", help="the module; - is standard input")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="where the binary HloModuleProto goes; - is standard output")
    asked = parser.parse_args(argv)
    name = "<stdin>" if asked.input == "-" else asked.input
    try:
        output = _output_alone() if asked.output == "-" else None
        if asked.input == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(asked.input, "rb") as file:
                data = file.read()
            if asked.output != "-" and os.path.exists(asked.output) and os.path.samefile(asked.input, asked.output):
                raise Error(f"-o {asked.output} would replace what is read; give -o another file", 2)
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        if not is_stablehlo(data):
            raise Error(f"{name}: this is no StableHLO, expected text, bytecode or a file of jax.export")
        _write(asked.output, output, hlo_of(data, name))
    except Error as error:
        # The name of what the calling program reads is said by it.
        print(f"error: {str(error).removeprefix('<stdin>: ')}", file=sys.stderr)
        return error.exit_code or 3
    except (OSError, EOFError, gzip.zlib.error) as error:
        print(f"error: {getattr(error, 'filename', None) or name}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
