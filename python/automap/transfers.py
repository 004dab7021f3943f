"""Arrays from the devices of one group to those of another, of this process or another one."""

import functools

import jax
import jax.numpy as jnp


def _extents(index, shape):
    return tuple((part.start or 0, extent if part.stop is None else part.stop) for part, extent in zip(index, shape))


def _by_device(sharding, shape):
    """The part of an array that every device has: ((begin, end) of every dimension)."""
    return {device: _extents(index, shape) for device, index in sharding.devices_indices_map(shape).items()}


def _common(one, other):
    both = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, other))
    return both if all(a < b for a, b in both) else None


def _slices(part, within):
    return tuple(slice(a - begin, b - begin) for (a, b), (begin, _) in zip(part, within))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _joined(part, extents, pieces):
    """One array of the parts of others that lie in it."""
    whole = jnp.zeros([b - a for a, b in part], pieces[0].dtype)
    for of_piece, piece in zip(extents, pieces):
        common = _common(part, of_piece)
        whole = whole.at[_slices(common, part)].set(piece[_slices(common, of_piece)])
    return whole


def _assembled(part, pieces, device):
    """One device's part of an array, of pieces on any devices of this process, by their extents."""
    if part in pieces:
        return jax.device_put(pieces[part], device)
    inside = tuple(extents for extents in pieces if _common(part, extents))
    return _joined(part, inside, [jax.device_put(pieces[extents], device) for extents in inside])


def move(array, source, target, shape, kind, processes=None):
    """The array on other devices; None in a process that has none of them. source, target: shardings. Every process of the run
    makes the same calls in the same order; nothing is waited for. array: None where this process has no part of it."""
    across = {device.process_index for sharding in (source, target) for device in sharding.device_set}
    if processes is None or across == {processes.rank}:
        return jax.device_put(array, target)
    held, wanted = _by_device(source, shape), _by_device(target, shape)
    pieces = {}  # by extents, the devices that have them
    for device, extents in held.items():
        pieces.setdefault(extents, []).append(device)
    here = {} if array is None else {_extents(shard.index, shape): shard.data for shard in array.addressable_shards}
    for rank in sorted({device.process_index for device in wanted}):
        readers = {device: part for device, part in wanted.items() if device.process_index == rank}
        for extents, devices in pieces.items():
            reader = next((device for device, part in readers.items() if not shape or _common(part, extents)), None)
            if reader is None or any(device.process_index == rank for device in devices):
                continue
            number, sender = processes.next_number(), devices[0].process_index
            if sender == processes.rank:
                processes.offer(number, here[extents])
            if rank == processes.rank:
                here[extents] = processes.fetch(sender, number, tuple(b - a for a, b in extents), kind, reader)
    mine = [(device, part) for device, part in wanted.items() if device.process_index == processes.rank]
    if not mine:
        return None
    return jax.make_array_from_single_device_arrays(shape, target, [_assembled(part, here, device) for device, part in mine])
