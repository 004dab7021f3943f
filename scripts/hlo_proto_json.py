#!/usr/bin/env python3
"""Binary HloModuleProto -> HloProto as proto3 JSON, with the standard library alone.

Examples:
  python3 scripts/hlo_proto_json.py fixtures/hlo/tiny_mlp.pb.gz
  zcat fixtures/hlo/tiny_mlp.pb.gz | python3 scripts/hlo_proto_json.py - > tiny_mlp.json

Follows protobuf's JSON mapping: lowerCamelCase names, 64-bit integers as strings, bytes as base64, enums by name,
fields that hold their default left out. Fields that the tables below do not know are left out too, as protobuf does
with unknown fields; the tables hold what single-device modules use.
"""

import base64
import gzip
import json
import math
import struct
import sys

# Scalars: s string, b bytes, i int64, n int32, u uint32, U uint64, t bool, f float, d double, and enums by their name.
# "*" repeats (packed or not), "{}" is a map from string to string. Anything else names a message below.
ENUMS = {
    "PrimitiveType": {
        0: "PRIMITIVE_TYPE_INVALID", 1: "PRED", 2: "S8", 3: "S16", 4: "S32", 5: "S64", 6: "U8", 7: "U16", 8: "U32",
        9: "U64", 10: "F16", 11: "F32", 12: "F64", 13: "TUPLE", 14: "OPAQUE_TYPE", 15: "C64", 16: "BF16", 17: "TOKEN",
        18: "C128", 19: "F8E5M2", 20: "F8E4M3FN", 21: "S4", 22: "U4", 23: "F8E4M3B11FNUZ", 24: "F8E5M2FNUZ",
        25: "F8E4M3FNUZ", 26: "S2", 27: "U2", 28: "F8E4M3", 29: "F8E3M4", 30: "S1", 31: "U1", 32: "F4E2M1FN",
        33: "F8E8M0FNU", 34: "BUFFER",
    },
    "Precision": {0: "DEFAULT", 1: "HIGH", 2: "HIGHEST"},
    "AliasKind": {0: "UNDEFINED_ALIAS", 1: "MAY_ALIAS", 2: "MUST_ALIAS"},
    "RandomDistribution": {0: "RNG_INVALID", 1: "RNG_UNIFORM", 2: "RNG_NORMAL"},
    "RandomAlgorithm": {0: "RNG_DEFAULT", 1: "RNG_THREE_FRY", 2: "RNG_PHILOX"},
    "ResultAccuracyMode": {0: "DEFAULT", 1: "HIGHEST"},
}
MESSAGES = {
    "HloProto": {1: ("hlo_module", "HloModuleProto")},
    "HloModuleProto": {
        1: ("name", "s"), 2: ("entry_computation_name", "s"), 3: ("computations", "*HloComputationProto"),
        4: ("host_program_shape", "ProgramShapeProto"), 5: ("id", "i"), 6: ("entry_computation_id", "i"),
        8: ("input_output_alias", "HloInputOutputAliasProto"), 11: ("is_dynamic", "t"),
        17: ("stack_frame_index", "StackFrameIndexProto"), 19: ("frontend_attributes", "FrontendAttributes"),
    },
    "HloComputationProto": {
        1: ("name", "s"), 2: ("instructions", "*HloInstructionProto"), 4: ("program_shape", "ProgramShapeProto"),
        5: ("id", "i"), 6: ("root_id", "i"), 7: ("is_fusion_computation", "t"), 8: ("execution_thread", "s"),
    },
    "HloInstructionProto": {
        1: ("name", "s"), 2: ("opcode", "s"), 3: ("shape", "ShapeProto"), 7: ("metadata", "OpMetadata"),
        8: ("literal", "LiteralProto"), 9: ("parameter_number", "i"), 11: ("fusion_kind", "s"),
        13: ("tuple_index", "i"), 14: ("dimensions", "*i"), 15: ("window", "Window"),
        16: ("convolution_dimension_numbers", "ConvolutionDimensionNumbers"),
        17: ("slice_dimensions", "*SliceDimensions"), 18: ("exponent_bits", "n"), 19: ("mantissa_bits", "n"),
        20: ("dynamic_slice_sizes", "*i"), 21: ("padding_config", "PaddingConfig"),
        23: ("distribution", "RandomDistribution"), 28: ("custom_call_target", "s"),
        30: ("dot_dimension_numbers", "DotDimensionNumbers"),
        33: ("gather_dimension_numbers", "GatherDimensionNumbers"), 34: ("gather_slice_sizes", "*i"), 35: ("id", "i"),
        36: ("operand_ids", "*i"), 37: ("control_predecessor_ids", "*i"), 38: ("called_computation_ids", "*i"),
        43: ("backend_config", "b"), 48: ("scatter_dimension_numbers", "ScatterDimensionNumbers"),
        50: ("feature_group_count", "i"), 51: ("precision_config", "PrecisionConfig"), 58: ("batch_group_count", "i"),
        60: ("is_stable", "t"), 63: ("comparison_direction", "s"), 65: ("custom_call_has_side_effect", "t"),
        67: ("indices_are_sorted", "t"), 68: ("frontend_attributes", "FrontendAttributes"),
        69: ("unique_indices", "t"), 70: ("rng_algorithm", "RandomAlgorithm"), 72: ("comparison_type", "s"),
        81: ("k", "i"), 82: ("statistics_viz", "StatisticsViz"), 85: ("largest", "t"), 89: ("is_composite", "t"),
        91: ("result_accuracy", "ResultAccuracy"),
    },
    "ShapeProto": {
        2: ("element_type", "PrimitiveType"), 3: ("dimensions", "*i"), 4: ("tuple_shapes", "*ShapeProto"),
        5: ("layout", "LayoutProto"), 6: ("is_dynamic_dimension", "*t"),
    },
    "LayoutProto": {
        1: ("minor_to_major", "*i"), 7: ("element_size_in_bits", "i"), 8: ("memory_space", "i"),
        16: ("tail_padding_alignment_in_elements", "i"),
    },
    "ProgramShapeProto": {
        1: ("parameters", "*ShapeProto"), 2: ("result", "ShapeProto"), 3: ("parameter_names", "*s"),
    },
    "OpMetadata": {
        1: ("op_type", "s"), 2: ("op_name", "s"), 3: ("source_file", "s"), 4: ("source_line", "n"),
        15: ("stack_frame_id", "n"), 17: ("source_end_line", "n"), 18: ("source_column", "n"),
        19: ("source_end_column", "n"),
    },
    "LiteralProto": {
        1: ("shape", "ShapeProto"), 2: ("preds", "*t"), 3: ("u8s", "b"), 4: ("s32s", "*n"), 5: ("s64s", "*i"),
        6: ("u32s", "*u"), 7: ("u64s", "*U"), 8: ("f32s", "*f"), 9: ("f64s", "*d"),
        10: ("tuple_literals", "*LiteralProto"), 11: ("f16s", "b"), 12: ("c64s", "*f"), 13: ("bf16s", "b"),
        15: ("s8s", "b"), 16: ("u16s", "b"), 17: ("s16s", "b"), 18: ("c128s", "*d"),
    },
    "Window": {1: ("dimensions", "*WindowDimension")},
    "WindowDimension": {
        1: ("size", "i"), 2: ("stride", "i"), 3: ("padding_low", "i"), 4: ("padding_high", "i"),
        5: ("window_dilation", "i"), 6: ("base_dilation", "i"), 7: ("window_reversal", "t"),
    },
    "ConvolutionDimensionNumbers": {
        3: ("kernel_input_feature_dimension", "i"), 4: ("kernel_output_feature_dimension", "i"),
        6: ("kernel_spatial_dimensions", "*i"), 7: ("input_batch_dimension", "i"),
        8: ("input_feature_dimension", "i"), 9: ("output_batch_dimension", "i"),
        10: ("output_feature_dimension", "i"), 11: ("input_spatial_dimensions", "*i"),
        12: ("output_spatial_dimensions", "*i"),
    },
    "SliceDimensions": {1: ("start", "i"), 2: ("limit", "i"), 3: ("stride", "i")},
    "PaddingConfig": {1: ("dimensions", "*PaddingConfigDimension")},
    "PaddingConfigDimension": {
        1: ("edge_padding_low", "i"), 2: ("edge_padding_high", "i"), 3: ("interior_padding", "i"),
    },
    "DotDimensionNumbers": {
        1: ("lhs_contracting_dimensions", "*i"), 2: ("rhs_contracting_dimensions", "*i"),
        3: ("lhs_batch_dimensions", "*i"), 4: ("rhs_batch_dimensions", "*i"),
    },
    "GatherDimensionNumbers": {
        1: ("offset_dims", "*i"), 2: ("collapsed_slice_dims", "*i"), 3: ("start_index_map", "*i"),
        4: ("index_vector_dim", "i"), 5: ("operand_batching_dims", "*i"), 6: ("start_indices_batching_dims", "*i"),
    },
    "ScatterDimensionNumbers": {
        1: ("update_window_dims", "*i"), 2: ("inserted_window_dims", "*i"), 3: ("scatter_dims_to_operand_dims", "*i"),
        4: ("index_vector_dim", "i"), 5: ("input_batching_dims", "*i"), 6: ("scatter_indices_batching_dims", "*i"),
    },
    "PrecisionConfig": {1: ("operand_precision", "*Precision")},
    "FrontendAttributes": {1: ("map", "{}")},
    "StatisticsViz": {1: ("stat_index_to_visualize", "i")},
    "ResultAccuracy": {1: ("mode", "ResultAccuracyMode")},
    "HloInputOutputAliasProto": {1: ("entries", "*AliasEntryProto")},
    "AliasEntryProto": {
        1: ("output_shape_index", "*i"), 2: ("parameter_number", "i"), 3: ("parameter_shape_index", "*i"),
        4: ("kind", "AliasKind"),
    },
    "StackFrameIndexProto": {
        1: ("file_names", "*s"), 2: ("function_names", "*s"), 3: ("file_locations", "*FileLocation"),
        4: ("stack_frames", "*StackFrame"),
    },
    "FileLocation": {
        1: ("file_name_id", "n"), 2: ("function_name_id", "n"), 3: ("line", "n"), 4: ("column", "n"),
        5: ("end_line", "n"), 6: ("end_column", "n"),
    },
    "StackFrame": {1: ("file_location_id", "n"), 2: ("parent_frame_id", "n")},
}
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def read_varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError(f"broken number at byte {at}: truncated, or not a protobuf message")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def read_fields(data):
    """Yields (field number, wire type, value, first byte, byte after) of one message."""
    at = 0
    while at < len(data):
        start = at
        key, at = read_varint(data, at)
        wire = key & 7
        if wire == VARINT:
            value, at = read_varint(data, at)
        elif wire == BYTES:
            size, at = read_varint(data, at)
            value, at = data[at:at + size], at + size
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            value, at = data[at:at + size], at + size
        else:
            raise ValueError(f"wire type {wire} at byte {start}: not a protobuf message")
        if at > len(data):
            raise ValueError(f"field {key >> 3} at byte {start} runs past the end: truncated message")
        yield key >> 3, wire, value, start, at


def without_field(data, number):
    """The same message without one of its top-level fields."""
    return b"".join(data[start:end] for field, _, _, start, end in read_fields(data) if field != number)


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def json_float(value, single):
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if single:  # the shortest decimal that reads back as the same float
        for digits in range(6, 10):
            short = float(f"{value:.{digits}g}")
            if struct.pack("<f", short) == struct.pack("<f", value):
                return short
    return value


def decode_scalar(kind, value):
    """-> (JSON value, whether it is the field's default)"""
    if kind == "s":
        return value.decode(), not value
    if kind == "b":
        return base64.b64encode(value).decode(), not value
    if kind == "f":
        number = struct.unpack("<f", value)[0]
        return json_float(number, True), value == bytes(4)
    if kind == "d":
        return json_float(struct.unpack("<d", value)[0], False), value == bytes(8)
    if kind == "t":
        return bool(value), not value
    if kind in ("n", "i"):
        number = signed(value)
        return (number if kind == "n" else str(number)), not value
    if kind in ("u", "U"):
        return (value if kind == "u" else str(value)), not value
    return ENUMS[kind].get(value, value), not value


def unpack(kind, wire, value):
    """The elements of a repeated scalar field, packed or single."""
    if wire != BYTES or kind in ("s", "b"):
        return [value]
    if kind in ("f", "d"):
        size = 4 if kind == "f" else 8
        return [value[at:at + size] for at in range(0, len(value), size)]
    found, at = [], 0
    while at < len(value):
        element, at = read_varint(value, at)
        found.append(element)
    return found


def camel(name):
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def decode(data, message):
    result, table = {}, MESSAGES[message]
    for number, wire, value, _, _ in read_fields(data):
        if number not in table:
            continue
        name, kind = table[number]
        name = camel(name)
        if kind == "{}":
            pair = {n: v.decode() for n, _, v, _, _ in read_fields(value)}
            result.setdefault(name, {})[pair.get(1, "")] = pair.get(2, "")
        elif kind.lstrip("*") in MESSAGES:
            inner = decode(value, kind.lstrip("*"))
            if kind[0] == "*":
                result.setdefault(name, []).append(inner)
            else:
                result[name] = inner
        elif kind[0] == "*":
            elements = [decode_scalar(kind[1:], element)[0] for element in unpack(kind[1:], wire, value)]
            result.setdefault(name, []).extend(elements)
        else:
            shown, default = decode_scalar(kind, value)
            if not default:
                result[name] = shown
    return result


def hlo_proto_json(module):
    """HloModuleProto bytes -> the text of an HloProto JSON document."""
    return json.dumps({"hloModule": decode(module, "HloModuleProto")}, separators=(",", ":"), ensure_ascii=False)


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2
    try:
        data = sys.stdin.buffer.read() if sys.argv[1] == "-" else open(sys.argv[1], "rb").read()
        print(hlo_proto_json(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))
    except (OSError, EOFError, ValueError, TypeError, AttributeError, struct.error) as error:
        print(f"hlo_proto_json.py: {sys.argv[1]}: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
