"""The devices of one group, its replicas x width, and programs compiled for all of them.

A program keeps the shapes of whole arrays. What is said about how arrays lie on the devices goes to XLA, whose partitioner
splits the work and adds the collectives between the devices.
"""

import numpy as np

import jax
from jax._src.interpreters import mlir
from jax._src.sharding_impls import parse_flatten_op_sharding
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo, _jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from automap.programs import ProgramsError


class GroupMesh:
    """Neighbours are of one replica: device i is place i % width of replica i / width."""

    def __init__(self, devices, replicas=1, width=1):
        self.devices, self.replicas, self.width = tuple(devices), replicas, width
        self.mesh = Mesh(np.array(self.devices).reshape(replicas, width), ("replicas", "width"))
        self.whole = NamedSharding(self.mesh, PartitionSpec())

    def sharding(self, split):
        """`split`: by axis of the mesh the dimension that is in parts over it, as the manifest has it."""
        dims = {}
        for axis in ("width", "replicas"):  # The width cuts first, so that replicas hold parts of what a device computes with.
            if axis in split:
                dims.setdefault(split[axis], []).append(axis)
        last = max(dims, default=-1)
        return NamedSharding(self.mesh, PartitionSpec(*(tuple(dims.get(d, ())) or None for d in range(last + 1))))

    def told(self, sharding):
        """A sharding over these devices as JSON."""
        return [list(axes) if isinstance(axes, tuple) else axes for axes in sharding.spec]

    def of_told(self, told):
        return NamedSharding(self.mesh, PartitionSpec(*(tuple(axes) if isinstance(axes, list) else axes for axes in told)))


def _annotation(sharding, rank):
    return ir.StringAttr.get(str(sharding._to_xla_hlo_sharding(rank)))


def _annotated(lowered, reads, makes, gathered):
    """StableHLO text that says how main's arguments and results lie, and what is gathered before it is read."""
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(lowered)
        main = next(op for op in module.body.operations if ir.StringAttr(op.attributes["sym_name"]).value == "main")
        block = main.regions[0].blocks[0]
        for key, types, told in (("arg_attrs", main.type.inputs, reads), ("res_attrs", main.type.results, makes)):
            of_each = [{a.name: a.attr for a in ir.DictAttr(d)} for d in main.attributes[key]] if key in main.attributes else \
                [{} for _ in types]
            for attributes, type_, sharding in zip(of_each, types, told):
                if sharding is not None:
                    attributes["mhlo.sharding"] = _annotation(sharding, ir.RankedTensorType(type_).rank)
            main.attributes[key] = ir.ArrayAttr.get([ir.DictAttr.get(d) for d in of_each])
        for number, sharding in gathered.items():
            argument = block.arguments[number]
            with ir.InsertionPoint.at_block_begin(block):
                held = stablehlo.CustomCallOp([argument.type], [argument], "Sharding")
            held.attributes["mhlo.sharding"] = _annotation(sharding, ir.RankedTensorType(argument.type).rank)
            argument.replace_all_uses_except(held.results[0], held.operation)
        return str(module)


class CompiledProgram:
    """HLO text as a program on the devices of a mesh; called with arrays it gives a list of arrays.

    reads: the sharding of every argument. makes: of every result, None where XLA decides; `shardings` has what became of
    it. shapes: of the results. gathered: by the number of an argument, the sharding that it is brought into first.
    Of one device nothing of it is looked at.
    """

    def __init__(self, text, name, mesh, reads=(), makes=(), shapes=(), gathered=None):
        self.name, self.mesh, self.shapes, self.shardings = name, mesh, shapes, [mesh.whole] * len(shapes)
        self.several = len(mesh.devices) > 1
        try:
            lowered = text if name.endswith(".mlir") else \
                _jax.mlir.hlo_to_stablehlo(_hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
            if not self.several:
                self.loaded = self._load(lowered, makes)
                return
            self.loaded = self._load(_annotated(lowered, reads, makes, gathered or {}), makes)
            self.shardings = [asked or self._decided(*one) for asked, *one in zip(makes, self.loaded.get_output_shardings(), shapes)]
            if None in self.shardings:
                makes = self.shardings = [one or mesh.whole for one in self.shardings]
                self.loaded = self._load(_annotated(lowered, reads, makes, gathered or {}), makes)
        except Exception as error:
            raise ProgramsError(f"{name}: XLA does not take it: {str(error).splitlines()[0]}") from error

    def _load(self, lowered, makes):
        devices = self.mesh.devices
        options = _jax.CompileOptions()
        options.num_replicas, options.num_partitions = 1, len(devices)
        options.device_assignment = _jax.DeviceAssignment.create(np.array([[device.id for device in devices]]))
        options.compile_portable_executable = False
        if self.several:
            build = options.executable_build_options
            build.num_replicas, build.num_partitions = 1, len(devices)
            build.use_spmd_partitioning, build.use_shardy_partitioner = True, False
            build.allow_spmd_sharding_propagation_to_output = [sharding is None for sharding in makes]
        return devices[0].client.compile_and_load(lowered, _jax.DeviceList(devices), options)

    def _decided(self, told, shape):
        """The sharding that XLA chose for a result. None where its parts are not equal, as arrays want them: it has to be whole."""
        try:
            sharding = NamedSharding(self.mesh.mesh, parse_flatten_op_sharding(told, self.mesh.mesh)[0])
            sharding.shard_shape(shape)
        except (ValueError, AssertionError, NotImplementedError):
            return None
        return sharding

    def text(self):
        """The program after XLA's passes, its collectives among its instructions."""
        return "\n".join(module.to_string() for module in self.loaded.hlo_modules())

    def __call__(self, arrays):
        try:
            made = self.loaded.execute_sharded(arrays).disassemble_into_single_device_arrays()
        except Exception as error:
            raise ProgramsError(f"{self.name}: XLA cannot run it: {str(error).splitlines()[0]}") from error
        if not self.several:
            return [parts[0] for parts in made]
        return [jax.make_array_from_single_device_arrays(shape, sharding, parts)
                for parts, sharding, shape in zip(made, self.shardings, self.shapes)]
