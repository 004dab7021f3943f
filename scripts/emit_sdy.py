#!/usr/bin/env python3
"""Writes the HLO text of `automap-search ... --emit-hlo` as StableHLO with Shardy's attributes, and runs it on host devices.

Installed it is `automap-emit-sdy` (`automap emit-sdy`), in a checkout `scripts/emit_sdy.py`. It runs with the python3 of the
PATH; where that has no jaxlib, give the script to one that has: `~/venv/bin/python3 $(which automap-emit-sdy) ...`.
`automap-search opp|adp|apply ... --emit-sdy FILE` runs it with the Python that AUTOMAP_JAX_PYTHON names.

Examples:
  automap-emit-sdy sharded.hlo --mesh model=8 -o sharded.mlir
  automap-emit-sdy sharded.hlo --mesh data=4,model=2 -o sharded.mlir --run
  automap-emit-sdy sharded.mlir --run --against model.hlo --json

The mesh names the axes that devices are numbered along, the last one fastest: with data=4,model=2 device 5 is data 2, model
1. Without --mesh it is one axis `devices`. The `sharding={...}` of the entry's parameters and of its
result become sdy.sharding, with closed dimensions (Shardy splits none further), those of instructions inside, `Sharding`
custom-calls among them, sdy.sharding_constraint. What is written has passed Shardy's verifier and reads back as it was.

--run compiles the module with Shardy for as many host devices as the mesh has, and the same module without its shardings
(or --against the module it was made of) for one, and compares the results on numbers made up for the inputs. Entries that
rounding alone decides are found as automap-apply-plan does, and left out. It needs jax.

Exit codes: 0 written, or all results are equal within --rtol or --atol; 1: they are not; 2: wrong usage, a mesh that does not
fit the module, no jaxlib; 3: the input cannot be read or expressed, the output cannot be written.
"""

import argparse
import functools
import gzip
import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import re
import sys
import tempfile
import unicodedata
from pathlib import Path
from types import SimpleNamespace

PROGRAM = Path(sys.argv[0]).name  # automap-emit-sdy where AutoMap is installed
MOST_DEVICES = 1 << 20


def printable(text):
    """One line in which nothing acts on a terminal; the programs' rule is common/base/printable.h."""
    acts = ("Cc", "Cf", "Cs", "Zl", "Zp")
    return "".join(c if unicodedata.category(c) not in acts else c.encode("unicode_escape").decode() for c in str(text))


def shorten(text, most=120):
    return text if len(text) <= most else text[:most] + "..."


class Refused(Exception):
    """What is wrong, where, and (hint) what to do about it."""

    def __init__(self, message, hint="", code=3):
        super().__init__(message)
        self.hint, self.code = hint, code


def usage(message, hint=""):
    return Refused(message, hint, 2)


# --- The mesh, and what a sharding of HLO says on it. Needs no jaxlib. ---


def parse_mesh(text):
    """"data=4,model=2" -> (("data", 4), ("model", 2))"""
    axes = []
    for piece in text.split(","):
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*=\s*(\d{1,7})\s*", piece)
        if not match or not 1 <= int(match.group(2)) <= MOST_DEVICES:
            raise usage(f"--mesh {text}: found {piece!r}, expected AXIS=DEVICES", "for example --mesh data=4,model=2")
        axes.append((match.group(1), int(match.group(2))))
    if len({name for name, _ in axes}) != len(axes):
        raise usage(f"--mesh {text}: two axes have one name")
    return tuple(axes)


def mesh_text(mesh):
    return ",".join(f"{name}={size}" for name, size in mesh)


class NotExpressible(Exception):
    """Why a sharding cannot be said on the mesh."""


def tuple_parts(text):
    """"{{a}, {b}}" -> ["{a}", "{b}"]; None: it is no tuple."""
    inner = re.sub(r"/\*.*?\*/", "", text).strip()
    if not inner.startswith("{") or not inner.endswith("}"):
        raise NotExpressible("it is no sharding")
    inner = inner[1:-1].strip()
    if not inner.startswith("{"):
        return None
    parts, depth, begin = [], 0, 0
    for at, c in enumerate(inner + ","):
        depth += (c in "{[(") - (c in "}])")
        if c == "," and depth == 0:
            parts.append(inner[begin:at].strip())
            begin = at + 1
    return parts


def leaves_of(text):
    """The shardings of the arrays of a value, nested tuples flattened."""
    parts = tuple_parts(text)
    if parts is None:
        return [text.strip()]
    return [leaf for part in parts for leaf in leaves_of(part)]


TILED = re.compile(r"\{devices=\[([\d,]+)\](?:<=\[([\d,]+)\](?:T\(([\d,]+)\))?|([\d,]+))((?:\s+last_tile_dim_replicate)?)"
                   r"((?:\s+last_tile_dims=\{[a-z, ]*\})?)\s*\}")


def numbers(text):
    return [int(n) for n in text.split(",")]


def iota(reshape, permutation):
    """The device numbers of "<=[reshape]T(permutation)", flat."""
    strides = [math.prod(reshape[k + 1:]) for k in range(len(reshape))]
    ranges = [range(0, strides[k] * reshape[k], strides[k]) for k in permutation]
    return [sum(place) for place in itertools.product(*ranges)]


def tiling(text, devices):
    """"{devices=[2,1,4]<=[8] last_tile_dim_replicate}" -> (extents of the dimensions, the devices of every tile)."""
    match = TILED.fullmatch(text)
    if not match:
        raise NotExpressible("expected {replicated} or {devices=[...]<=[...]}, with last_tile_dim_replicate or without")
    extents = numbers(match.group(1))
    if math.prod(extents) != devices:
        raise NotExpressible(f"it is of {math.prod(extents)} devices, the mesh has {devices}")
    if match.group(2):
        reshape = numbers(match.group(2))
        order = numbers(match.group(3)) if match.group(3) else list(range(len(reshape)))
        if math.prod(reshape) != devices or sorted(order) != list(range(len(reshape))):
            raise NotExpressible("its list of devices makes no sense")
        ids = iota(reshape, order)
    else:
        ids = numbers(match.group(4))
        if sorted(ids) != list(range(devices)):
            raise NotExpressible("its list of devices makes no sense")
    kinds = match.group(6).partition("{")[2].partition("}")[0].replace(" ", "").split(",") if match.group(6) else []
    if any(kind != "replicated" for kind in kinds):
        raise NotExpressible("only replicated subgroups can be expressed")
    extra = 1 if match.group(5) else len(kinds)
    if extra >= len(extents):
        raise NotExpressible("it has no dimension")
    copies = math.prod(extents[len(extents) - extra:])
    return extents[:len(extents) - extra], [frozenset(ids[k:k + copies]) for k in range(0, devices, copies)]


def choices(extents, mesh):
    """Every way to give each dimension axes (the first is the major one) whose sizes multiply to its extent."""
    if not extents:
        yield ()
        return
    for count in range(len(mesh) + 1):
        for chosen in itertools.permutations(mesh, count):
            if math.prod(size for _, size in chosen) == extents[0] and all(size > 1 for _, size in chosen):
                for others in choices(extents[1:], tuple(axis for axis in mesh if axis not in chosen)):
                    yield (tuple(name for name, _ in chosen), *others)


def tiles_of(choice, mesh):
    """The devices of every tile when the dimensions are split along the chosen axes."""
    sizes, stride, strides = dict(mesh), 1, {}
    for name, size in reversed(mesh):
        strides[name], stride = stride, stride * size
    used = [name for names in choice for name in names]
    rest = [name for name, _ in mesh if name not in used]
    steps = lambda names: [[strides[n] * k for k in range(sizes[n])] for n in names]
    copies = [sum(place) for place in itertools.product(*steps(rest))]
    return [frozenset(sum(place) + copy for copy in copies) for place in itertools.product(*steps(used))]


@functools.lru_cache(maxsize=None)
def axes_of(text, rank, mesh):
    """One sharding of an array -> a tuple of axis names per dimension, the major one first."""
    if text == "{replicated}":
        return ((),) * rank
    extents, tiles = tiling(text, math.prod(size for _, size in mesh))
    if len(extents) != rank:
        raise NotExpressible(f"it is of {len(extents)} dimensions, the tensor has {rank}")
    for choice in choices(extents, mesh):
        if tiles_of(choice, mesh) == tiles:
            return choice
    raise NotExpressible(f"no axes of the mesh {mesh_text(mesh)} split like that")


def axes_of_all(text, ranks, mesh):
    """axes_of for every array of a value; one sharding is for all of them."""
    leaves = leaves_of(text)
    if len(leaves) == 1 and len(ranks) != 1 and tuple_parts(text) is None:
        leaves *= len(ranks)
    if len(leaves) != len(ranks):
        raise NotExpressible(f"it is of {len(leaves)} arrays, the value has {len(ranks)}")
    return [axes_of(leaf, rank, mesh) for leaf, rank in zip(leaves, ranks)]


# --- The HLO text: what is said of it names lines and instructions, which StableHLO has no more. ---


def read_text(path):
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (OSError, EOFError) as error:
        raise Refused(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    name = "<stdin>" if path == "-" else path
    if data[:4] == b"ML\xefR":
        raise Refused(f"{name}: is MLIR bytecode, expected text", "write it as text")
    try:
        return name, data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Refused(f"{name}:{line}: is no text: found a byte that is no UTF-8, expected HLO text",
                      "automap-search ... --emit-hlo FILE writes it") from None


def is_mlir(text):
    """Whether it begins as MLIR text does, behind comments and aliases."""
    for line in text.splitlines():
        if line.strip() and not re.match(r"\s*(//|[#!]\w+\S* = )", line):
            return re.match(r'\s*(module\b|"?builtin\.module|func\.func\b|sdy\.mesh\b)', line) is not None
    return False


INSTRUCTION = re.compile(r"\s+(?:ROOT )?(%?[\w.\-]+) = ")
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
DIMENSIONS = re.compile(r"\b[a-z]+\d*[a-z\d]*\[([^\]]*)\]")


def shape_and_rest(text):
    """The shape an instruction begins with (a tuple's in its parentheses), and what is behind it."""
    if not text.startswith("("):
        return text.partition(" ")[::2]
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[:at + 1], text[at + 1:]
    return text, ""


def braced(text, at):
    """The text from the brace at `at` to the one that closes it."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return text[at:end + 1]
    return text[at:]


def check_hlo(name, text, mesh):
    """Refuses, by line and instruction, what cannot be expressed on the mesh."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    if is_mlir(text):
        raise Refused(f"{name}: is MLIR already, expected the HLO text that automap-search ... --emit-hlo writes",
                      "--run judges a file that was written before")
    if not header.startswith("HloModule"):
        raise Refused(f"{name}:1: found {shorten(header, 40)!r}, expected an HLO text, which begins with HloModule",
                      "automap-search ... --emit-hlo FILE writes it")
    partitions = re.search(r"\bnum_partitions=(\d+)", QUOTED.sub('""', header))
    partitions = int(partitions.group(1)) if partitions else 1
    mesh = mesh or (("devices", partitions),)
    if math.prod(size for _, size in mesh) != partitions:
        raise usage(f"--mesh {mesh_text(mesh)} has {math.prod(size for _, size in mesh)} devices, {name} is for "
                    f"{partitions} (num_partitions in its first line)",
                    "the module was planned for that many: give axes that multiply to it" if partitions > 1 else
                    "automap-search ... --emit-hlo writes a module that is annotated and says for how many devices")
    for number, line in enumerate(text.splitlines(), 1):
        if "sharding=" not in line:
            continue
        line = QUOTED.sub('""', line)
        instruction, at = INSTRUCTION.match(line), re.search(r"[,)] sharding=(?=\{)", line)
        if not instruction or not at:
            continue
        sharding = braced(line, at.end())
        shape, _ = shape_and_rest(re.sub(r"/\*.*?\*/", "", line[instruction.end():at.start()]))
        ranks = [len([d for d in dims.split(",") if d]) for dims in DIMENSIONS.findall(shape)]
        try:
            axes_of_all(sharding, ranks, mesh)
        except NotExpressible as why:
            raise Refused(f"{name}:{number}: the sharding of {instruction.group(1)}, {shorten(sharding)}, cannot be expressed "
                          f"on the mesh {mesh_text(mesh)}: {why}",
                          "give the mesh that it was planned for, such as --mesh data=4,model=2") from None
    return mesh


# --- Through jaxlib. ---

def load_jaxlib():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        import jaxlib
    except ImportError:
        raise usage(f"jaxlib is not installed for this Python, {sys.executable}",
                    "pip install jax, or run this script with one that has it: PYTHON "
                    f"{sys.argv[0]} ... (automap-search: AUTOMAP_JAX_PYTHON=PYTHON)") from None
    try:
        from jaxlib import _hlo, _jax
        from jaxlib.mlir import ir, passmanager
        from jaxlib.mlir._mlir_libs import _jax_mlir_ext
        from jaxlib.mlir.dialects import chlo, mhlo, sdy, stablehlo

        _jax.mlir.hlo_to_stablehlo, _hlo.hlo_module_from_text  # noqa: B018  these are what may be missing
    except (ImportError, AttributeError) as error:
        raise usage(f"the jaxlib of {sys.executable} is {jaxlib.__version__}, which lacks what this needs ({error})",
                    "pip install jax==0.10.2") from None

    context = ir.Context()
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    sdy.register_dialect(context)
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    mhlo.register_mhlo_dialect(context)
    context.load_all_available_dialects()
    return SimpleNamespace(hlo=_hlo, mlir=_jax.mlir, ir=ir, sdy=sdy, passmanager=passmanager, context=context,
                           version=jaxlib.__version__)


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if "error: " in line), lines[0] if lines else type(error).__name__)
    return shorten(re.sub(r'^(?:error: )?(?:"-":\d+:\d+: )?|error: ', "", told), 300)


def to_stablehlo(lib, name, text):
    """The module in MLIR, with XLA's shardings as strings."""
    try:
        module = lib.hlo.hlo_module_from_text(text)
        return lib.ir.Module.parse(lib.mlir.hlo_to_stablehlo(module.as_serialized_hlo_module_proto()), lib.context)
    except Exception as error:  # pylint: disable=broad-except  # XLA's are of no common type
        raise Refused(f"{name}: jaxlib {lib.version} cannot turn it into StableHLO: {first_line(error)}",
                      "a module of another version of XLA, or one that is cut short?") from None


def programs(lib, name, text):
    """The StableHLO of every module of a JSON object of HLO texts by their names."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"{name}: is no JSON ({error})") from None
    if not isinstance(given, dict) or not all(isinstance(one, str) for one in given.values()):
        raise Refused(f"{name}: expected a JSON object of HLO texts by their names")
    return {of: str(to_stablehlo(lib, of, one)) for of, one in given.items()}


def operations(lib, module):
    """All operations, in the order of the text."""
    found = []
    module.operation.walk(lambda op: found.append(op) or lib.ir.WalkResult.ADVANCE)
    return found


def string_of(lib, attributes, key):
    return lib.ir.StringAttr(attributes[key]).value if key in attributes else None


def function(lib, module, name="main"):
    for op in module.body.operations:
        if op.operation.name == "func.func" and string_of(lib, op.operation.attributes, "sym_name") == name:
            return op
    raise Refused("the module has no function main")


def rank_of(lib, type_):
    return type_.rank if isinstance(type_, lib.ir.RankedTensorType) else 0


class Rewriter:
    """Strings of XLA's shardings -> attributes of Shardy; what HLO says about itself -> what JAX writes in StableHLO."""

    def __init__(self, lib, module, mesh, tuples):
        """`tuples`: a parameter was one, so that parameters have other numbers here."""
        self.lib, self.module, self.mesh, self.tuples = lib, module, mesh, tuples
        taken = {string_of(lib, op.operation.attributes, "sym_name") for op in module.body.operations}
        self.name = next(n for n in itertools.chain(["mesh"], (f"mesh_{k}" for k in itertools.count()))
                         if n not in taken)

    def rewrite(self):
        lib = self.lib
        with lib.context, lib.ir.Location.unknown(lib.context):
            self.aliases()
            for op in operations(lib, self.module):
                self.operation(op)
            axes = [lib.sdy.MeshAxisAttr.get(name, size) for name, size in self.mesh]
            with lib.ir.InsertionPoint.at_block_begin(self.module.body):
                lib.sdy.mesh(self.name, lib.sdy.MeshAttr.get(axes))
            attributes = self.module.operation.attributes
            for key in [a for a in attributes if a.startswith("mhlo.")]:
                del attributes[key]
            i32 = lib.ir.IntegerType.get_signless(32)
            attributes["mhlo.num_partitions"] = lib.ir.IntegerAttr.get(i32, math.prod(size for _, size in self.mesh))
            attributes["mhlo.num_replicas"] = lib.ir.IntegerAttr.get(i32, 1)
            # Functions that only HLO's reductions called.
            lib.passmanager.PassManager.parse("builtin.module(symbol-dce)").run(self.module.operation)

    def sharding(self, axes):
        sdy = self.lib.sdy
        return sdy.TensorShardingAttr.get(self.name, [
            sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(axis) for axis in names], True) for names in axes])

    def shardings(self, text, types, where):
        try:
            return [self.sharding(axes)
                    for axes in axes_of_all(text, [rank_of(self.lib, t) for t in types], self.mesh)]
        except NotExpressible as why:  # check_hlo has seen them all: one that jaxlib has made itself
            raise Refused(f"the sharding of {where}, {shorten(text)}, cannot be expressed on the mesh "
                          f"{mesh_text(self.mesh)}: {why}") from None

    def operation(self, op):
        op = op.operation
        if op.name == "func.func":
            self.function(op)
            return
        for key in ("xla_shape", "result_layout") if op.name != "stablehlo.custom_call" else ():
            if key in op.attributes:  # layouts before XLA has chosen any
                del op.attributes[key]
        text = string_of(self.lib, op.attributes, "mhlo.sharding")
        shardings = []
        if text is not None:
            del op.attributes["mhlo.sharding"]
            shardings = self.shardings(text, [r.type for r in op.results], f"a {op.name}")
        for result, sharding in zip(op.results, shardings):
            self.constrain(result, sharding)
        called = self.lib.ir.StringAttr(op.attributes["call_target_name"]).value if op.name == "stablehlo.custom_call" else ""
        if op.name == "mhlo.copy" or called == "Sharding":  # which only annotate
            op.results[0].replace_all_uses_with(op.operands[0])
            op.erase()

    def constrain(self, value, sharding):
        """Whoever reads the value reads it with the sharding. XLA takes no sdy.sharding of an operation for one."""
        ir = self.lib.ir
        if isinstance(value, ir.BlockArgument):
            point, location = ir.InsertionPoint.at_block_begin(value.owner), value.location
        else:
            point, location = ir.InsertionPoint.after(value.owner), value.owner.location
        with point, location:
            constraint = self.lib.sdy.ShardingConstraintOp(value, sharding)
        value.replace_all_uses_except(constraint.result, constraint.operation)

    def function(self, op):
        """Of main the attributes of arguments and results; of others constraints. What is inside was rewritten before."""
        ir = self.lib.ir
        types = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
        name = string_of(self.lib, op.attributes, "sym_name")
        for key, of in (("arg_attrs", types.inputs), ("res_attrs", types.results)):
            if key not in op.attributes:
                continue
            changed = []
            for number, old in enumerate(ir.ArrayAttr(op.attributes[key])):
                new = {a.name: a.attr for a in ir.DictAttr(old)}
                text = new.pop("mhlo.sharding", None)
                if text is not None:
                    where = f"{'argument' if key == 'arg_attrs' else 'result'} {number} of {name}"
                    sharding = self.shardings(ir.StringAttr(text).value, [of[number]], where)[0]
                    if name == "main":
                        new["sdy.sharding"] = sharding
                    elif key == "arg_attrs":
                        self.constrain(op.regions[0].blocks[0].arguments[number], sharding)
                    else:
                        self.constrain_result(op, number, sharding)
                changed.append(ir.DictAttr.get(new))
            op.attributes[key] = ir.ArrayAttr.get(changed)

    def constrain_result(self, op, number, sharding):
        """Of a function; mostly what makes it is constrained already."""
        block = op.regions[0].blocks[0]
        end = block.operations[len(block.operations) - 1].operation
        value = end.operands[number]
        made_by = None if isinstance(value, self.lib.ir.BlockArgument) else value.owner
        if made_by is not None and made_by.name == "sdy.sharding_constraint" and made_by.attributes["sharding"] == sharding:
            return
        with self.lib.ir.InsertionPoint(end), value.location:
            end.operands[number] = self.lib.sdy.ShardingConstraintOp(value, sharding).result

    def aliases(self):
        """input_output_alias of arrays that are whole results -> JAX's attribute of the argument."""
        ir, attributes = self.lib.ir, self.module.operation.attributes
        if "mhlo.input_output_alias" not in attributes or self.tuples:
            return
        main = function(self.lib, self.module).operation
        types = ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value)
        arguments = [{a.name: a.attr for a in ir.DictAttr(d)} for d in ir.ArrayAttr(main.attributes["arg_attrs"])] \
            if "arg_attrs" in main.attributes else [{} for _ in types.inputs]
        for entry in ir.ArrayAttr(attributes["mhlo.input_output_alias"]):
            entry = ir.DictAttr(entry)
            alias = ir.DictAttr(entry["alias"])
            output, inside = list(ir.DenseI64ArrayAttr(entry["output_index"])), list(ir.DenseI64ArrayAttr(alias["parameter_index"]))
            number = ir.IntegerAttr(alias["parameter_number"]).value
            result = output[0] if output else 0
            if inside or len(output) > 1 or number >= len(arguments) or types.inputs[number] != types.results[result]:
                continue  # only allows a buffer to be used again
            arguments[number]["tf.aliasing_output"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), result)
        main.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in arguments])


def verified(lib, name, module):
    """The module as text, judged by the verifiers, which reads back as it was."""
    try:
        module.operation.verify()
        text = module.operation.get_asm(enable_debug_info=True).rstrip("\n") + "\n"
        again = lib.ir.Module.parse(text, lib.context)
        again.operation.verify()
    except Exception as error:  # pylint: disable=broad-except  # MLIR's are of no common type
        raise Refused(f"{name}: Shardy's verifier refuses what became of it: {first_line(error)}",
                      "please report it with the HLO text") from None
    if again.operation.get_asm(enable_debug_info=True).rstrip("\n") + "\n" != text:
        raise Refused(f"{name}: what became of it does not read back as it was", "please report it with the HLO text")
    return text


def convert(lib, name, text, mesh):
    """HLO text -> the text with Shardy's attributes."""
    mesh = check_hlo(name, text, mesh)
    module = to_stablehlo(lib, name, text)
    tuples = re.search(r"= \(.* parameter\(\d", text.partition("\nENTRY ")[2]) is not None
    Rewriter(lib, module, mesh, tuples).rewrite()
    return verified(lib, name, module)


def write(path, text):
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = os.path.realpath(path)
    try:
        if not os.path.isfile(target) and os.path.exists(target):  # a pipe, a device
            with open(target, "w", encoding="utf-8") as file:
                file.write(text)
            return
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target), prefix=os.path.basename(target) + ".", suffix=".tmp")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                file.write(text)
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o666 & ~mask)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from None


# --- Judged by running. ---


def load_mlir(lib, name, text):
    """A module that convert() wrote, and its mesh."""
    try:
        module = lib.ir.Module.parse(text, lib.context)
        module.operation.verify()
    except Exception as error:  # pylint: disable=broad-except  # MLIR's are of no common type
        raise Refused(f"{name}: jaxlib {lib.version} does not read it: {first_line(error)}",
                      "of another version of Shardy or StableHLO? write it again from the HLO text, with this jaxlib") from None
    meshes = []
    for op in operations(lib, module):
        op = op.operation
        if op.name == "sdy.mesh":
            meshes.append(op)
        elif op.name.startswith("sdy.") and op.name != "sdy.sharding_constraint":
            raise Refused(f"{name}: found {op.name}, expected nothing of Shardy but sdy.mesh, sdy.sharding and "
                          "sdy.sharding_constraint", "write it from the HLO text: automap emit-sdy sharded.hlo -o FILE")
        if "mhlo.sharding = " in (str(op.attributes["arg_attrs"]) if "arg_attrs" in op.attributes else "") or \
                "mhlo.sharding" in op.attributes:
            raise Refused(f"{name}: found mhlo.sharding, expected sdy.sharding: it is annotated for GSPMD, not for Shardy",
                          "write it from the HLO text: automap emit-sdy sharded.hlo -o FILE")
    if len(meshes) != 1:
        raise Refused(f"{name}: found {len(meshes)} sdy.mesh, expected one", "is it what automap emit-sdy wrote?")
    with lib.context:
        mesh = lib.sdy.MeshAttr(meshes[0].attributes["mesh"])
        axes = tuple((axis.name, axis.size) for axis in map(lib.sdy.MeshAxisAttr, mesh.axes))
        if list(mesh.device_ids):
            raise Refused(f"{name}: its mesh lists devices, expected one without", "is it what automap emit-sdy wrote?")
    return module, axes


def without_shardings(lib, text):
    """The same module for one device."""
    module = lib.ir.Module.parse(text, lib.context)
    with lib.context, lib.ir.Location.unknown(lib.context):
        ir = lib.ir
        for op in operations(lib, module):
            op = op.operation
            if op.name == "sdy.sharding_constraint":
                op.results[0].replace_all_uses_with(op.operands[0])
            if op.name in ("sdy.mesh", "sdy.sharding_constraint"):
                op.erase()
                continue
            if "sdy.sharding" in op.attributes:
                del op.attributes["sdy.sharding"]
            for key in ("arg_attrs", "res_attrs"):
                if op.name == "func.func" and key in op.attributes:
                    op.attributes[key] = ir.ArrayAttr.get([
                        ir.DictAttr.get({a.name: a.attr for a in ir.DictAttr(d) if a.name not in
                                         ("sdy.sharding", "tf.aliasing_output")}) for d in ir.ArrayAttr(op.attributes[key])])
        one = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1)
        module.operation.attributes["mhlo.num_partitions"] = one
    return module


@functools.cache
def apply_plan():
    """automap-apply-plan, which fills inputs and compares results; it lies beside this."""
    for name in ("apply_plan.py", "automap-apply-plan"):
        path = Path(__file__).resolve().with_name(name)
        if path.is_file():
            sys.dont_write_bytecode = True
            loader = importlib.machinery.SourceFileLoader("automap_apply_plan", str(path))
            module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
            loader.exec_module(module)
            return module
    raise usage(f"automap-apply-plan is missing: it belongs beside {Path(__file__).resolve()}")


FLOATS = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64", "complex<f32>": "complex64",
          "complex<f64>": "complex128", "i1": "bool"}


def leaves_of_main(lib, np, jax, module):
    """The arguments as shapes with names, as apply_plan's Leaves has them."""
    import ml_dtypes
    shapes, names = [], []
    with lib.context:
        block = function(lib, module).regions[0].blocks[0]
        for number, argument in enumerate(block.arguments):
            kind = lib.ir.RankedTensorType(argument.type)
            element = str(kind.element_type)
            width = re.fullmatch(r"(u?)i(\d+)", element)
            known = FLOATS.get(element) or (width and f"{'u' if width.group(1) else ''}int{width.group(2)}")
            known = known or element.replace("f8E", "float8_e").lower()
            try:
                dtype = np.dtype(getattr(ml_dtypes, known, None) or known)
            except TypeError:
                raise Refused(f"no numbers can be made up for argument {number}, {argument.type}") from None
            shapes.append(jax.ShapeDtypeStruct(tuple(kind.shape), dtype))
            name = re.match(r'loc\("((?:[^"\\]|\\.)*)"', str(argument.location))
            names.append((name.group(1) if name else f"argument {number}",))
    return SimpleNamespace(leaves=shapes, names=names)


class Program:
    """A module, compiled for the first `count` host devices."""

    def __init__(self, jax, np, text, count):
        from jaxlib import _jax

        options = _jax.CompileOptions()
        options.num_replicas, options.num_partitions = 1, count
        options.device_assignment = _jax.DeviceAssignment.create(np.arange(count).reshape(1, count))
        build = options.executable_build_options
        build.use_spmd_partitioning = build.use_shardy_partitioner = count > 1
        # Code that is run once need not be fast.
        build.debug_options.xla_backend_optimization_level, build.debug_options.xla_llvm_disable_expensive_passes = 0, True
        build.debug_options.xla_disable_hlo_passes = "cpu-all-reduce-combiner"  # so that they can be counted
        self.jax, self.np, self.devices = jax, np, tuple(jax.devices()[:count])
        self.compiled = self.devices[0].client.compile_and_load(text, _jax.DeviceList(self.devices), options)

    def text(self):
        return self.compiled.hlo_modules()[0].to_string()

    def sharding(self, sharding):
        from jax._src.sharding_impls import GSPMDSharding

        return GSPMDSharding(self.devices, sharding)

    def run(self, inputs, shapes=None):
        """Arrays of the host; `shapes` of the results, of a program for many devices."""
        jax = self.jax
        if len(self.devices) == 1:
            placed = [jax.device_put(x, self.devices[0]) for x in inputs]
            results = self.compiled.execute_sharded(placed).disassemble_into_single_device_arrays()
            return [self.np.asarray(parts[0]) for parts in results]
        placed = [jax.device_put(x, self.sharding(s)) for x, s in zip(inputs, self.compiled.get_parameter_shardings())]
        results = self.compiled.execute_sharded(placed).disassemble_into_single_device_arrays()
        return [self.np.asarray(jax.make_array_from_single_device_arrays(shape, self.sharding(s), parts))
                for shape, s, parts in zip(shapes, self.compiled.get_output_shardings(), results)]


def compiled(jax, np, name, text, count):
    try:
        return Program(jax, np, text, count)
    except Exception as error:  # pylint: disable=broad-except  # XLA's are of no common type
        raise Refused(f"{name}: XLA does not compile it for {count} devices: {first_line(error)}") from None


def judge(lib, options, name, text):
    module, mesh = load_mlir(lib, name, text)
    count = math.prod(size for _, size in mesh)
    if count > 1024:
        raise usage(f"--run: the mesh {mesh_text(mesh)} has {count} devices, expected up to 1024 host devices")
    ways = apply_plan()
    os.environ["JAX_PLATFORMS"] = "cpu"
    try:
        import jax
        import numpy as np
    except ImportError:
        raise usage(f"jax is not installed for this Python, {sys.executable}", "--run needs it: pip install jax") from None
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", count)  # jaxlib has read XLA_FLAGS by now
    leaves = leaves_of_main(lib, np, jax, module)
    if options.against:
        against, hlo = read_text(options.against)
        whole = to_stablehlo(lib, against, hlo)
        types = [[str(a.type) for a in function(lib, m).regions[0].blocks[0].arguments] for m in (module, whole)]
        if types[0] != types[1]:
            raise Refused(f"{against}: has other inputs than {name}", "--against takes the module that was planned")
    else:
        against, whole = name, without_shardings(lib, text)
    alone = compiled(jax, np, against, str(whole), 1)
    sharded = compiled(jax, np, name, text, count)

    roles = [None] * len(leaves.leaves)
    for filling in ways.FILLINGS:
        values = ways.fill(jax, np, leaves, roles, options.seed, filling)
        expected = alone.run(values)
        if not any(np.isnan(leaf.astype(np.complex128)).any() for leaf in expected if leaf.dtype.kind in "fcV"):
            break
    found = sharded.run(values, [leaf.shape for leaf in expected])
    half = re.search(r"[x<]b?f16>", text) is not None
    rtol = options.rtol if options.rtol is not None else 3e-2 if half else 1e-4
    comparisons = [ways.Comparison(np, f"result {number}", a, b, rtol, options.atol)
                   for number, (a, b) in enumerate(zip(expected, found))]
    rng = np.random.default_rng(options.seed + 1)
    ways.find_rounding(comparisons, lambda kick: alone.run(
        [ways.kicked(np, jax, value, rtol, rng) for value in values] if kick else values))
    return report_of(ways, mesh, comparisons, sharded, rtol, options.atol)


def report_of(ways, mesh, comparisons, sharded, rtol, atol):
    return {
        "schema": "automap.sdy/1",
        "mesh": dict(mesh),
        "devices": math.prod(size for _, size in mesh),
        "collectives": {kind: {"count": count, "bytes": size}
                        for kind, (count, size) in sorted(ways.collectives_of(sharded.text()).items())},
        **ways.told(comparisons),
        "rtol": rtol,
        "atol": atol,
        "equal": not ways.differing_of(comparisons),
    }


def human(report, name):
    lines = [f"{name} on {report['devices']} host devices, {mesh_text(report['mesh'].items())}"]
    for kind, of in report["collectives"].items():
        lines.append(f"  {kind:20} {of['count']:6,} {of['bytes']:14,} bytes")
    if not report["collectives"]:
        lines.append("  no collectives")
    lines += apply_plan().verdict_lines(report)
    if rounding := report["decided_by_rounding"]:
        lines.append(f"left out, since nothing but rounding decides them: {sum(r['entries'] for r in rounding):,} entries of "
                     f"{len(rounding)} results")
    return "\n".join(map(printable, lines))


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise usage(message, f"{PROGRAM} --help")


def parse_arguments():
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", metavar="FILE", nargs="?", help="HLO text as --emit-hlo writes it, gzipped or not; with "
                        "--run also what was written from it; - reads standard input")
    parser.add_argument("--mesh", metavar="AXIS=N,...", help="the mesh (one axis `devices`)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the module; - writes to standard output")
    parser.add_argument("--run", action="store_true", help="run it on host devices and compare with one device")
    parser.add_argument("--against", metavar="FILE", help="compare with this HLO text instead of the module without its "
                        "shardings")
    parser.add_argument("--rtol", type=float, help="largest relative difference per result (1e-4; 0.03 in a module that "
                        "computes in bf16 or f16)")
    parser.add_argument("--atol", type=float, default=1e-6, help="absolute differences up to this do not count (1e-6)")
    parser.add_argument("--seed", type=int, default=0, help="of the numbers that are made up (0)")
    parser.add_argument("--json", action="store_true", help="print the report of --run as one JSON document")
    parser.add_argument("--programs", action="store_true", help="instead: standard input is a JSON object of HLO texts by their names; "
                        "print the same with StableHLO, without shardings (automap emit --to stablehlo)")
    parser.add_argument("--probe", action="store_true", help="only say whether this Python has what is needed")
    options = parser.parse_args()
    if options.probe or options.programs:
        return options
    if not options.input:
        raise usage("missing FILE", f"{PROGRAM} --help")
    if not options.output and not options.run:
        raise usage("nothing to do: neither -o nor --run is given", f"{PROGRAM} {options.input} -o sharded.mlir")
    if options.output == "-" and options.run:
        raise usage("-o - and --run both want standard output", "give -o a file")
    if options.against and not options.run:
        raise usage("--against is for --run")
    if options.output and options.output != "-" and any(
            path and os.path.exists(path) and os.path.exists(options.output) and os.path.samefile(path, options.output)
            for path in (options.input, options.against)):
        raise usage(f"-o {options.output} would replace what is read", "give -o another file")
    return options


def run(options):
    mesh = parse_mesh(options.mesh) if options.mesh else None
    if options.probe:
        print(f"jaxlib {load_jaxlib().version}")
        return 0
    if options.programs:
        print(json.dumps(programs(load_jaxlib(), *read_text("-"))))
        return 0
    name, text = read_text(options.input)
    if options.run and is_mlir(text):
        if options.output or mesh:
            raise usage(f"{name} is MLIR already, with a mesh of its own: -o and --mesh are for HLO text")
        lib = load_jaxlib()
    else:
        check_hlo(name, text, mesh)
        lib = load_jaxlib()
        text = convert(lib, name, text, mesh)
    if not options.run:
        write(options.output, text)
        return 0
    report = judge(lib, options, name, text)
    if options.output:
        write(options.output, text)
    print(json.dumps(report, indent=2) if options.json else human(report, name))
    return 0 if report["equal"] else 1


def main():
    try:
        return run(parse_arguments())
    except Refused as error:
        print(f"error: {printable(error)}" + (f"\n  hint: {printable(error.hint)}" if error.hint else ""), file=sys.stderr)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
