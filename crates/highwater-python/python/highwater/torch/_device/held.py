"""Bytes of a device's memory that tensors hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from torch import Tensor

from .device import Device


def storage_key(value: Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def held(leaves: Iterator[Any] | Collection[Any], device: Device) -> int:
    """Bytes of a device's memory that tensors hold."""
    found = {id(leaf): device.rounded(leaf.nbytes) for leaf in leaves if isinstance(leaf, Tensor) and device.counts(leaf)}
    return sum(found.values())


def unseen(others: Iterable[Any], inputs: Iterable[Any], device: Device) -> int:
    """Bytes of memory that is there all the time and is not a graph's to see: of tensors that share none with its inputs."""
    seen = {storage_key(leaf) for leaf in inputs if isinstance(leaf, Tensor)}
    found = {storage_key(tensor): device.rounded(tensor.untyped_storage().nbytes()) for tensor in others if device.counts(tensor)}
    return sum(size for key, size in found.items() if key not in seen)
