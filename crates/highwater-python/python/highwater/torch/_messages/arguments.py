"""What users pass, checked before anything is done with it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy
from torch.utils import _pytree as pytree

# Beyond this, sizes are no sizes of batches.
LARGEST_BATCH = 1 << 40


def is_number(value: object) -> TypeGuard[float]:
    """Whether something is a real number: of Python, of numpy, or a tensor with one element. Truths are not."""
    if not isinstance(value, (int, float)) and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least so many."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or not is_number(value):
        raise TypeError(f"{name}={value!r} must be a whole number, not {kind_of(value)}")
    if number < least:
        raise ValueError(f"{name}={value!r} must be at least {least}")
    return number


def not_negative(name: str, value: Any) -> float:
    if not is_number(value):
        raise TypeError(f"{name}={value!r} must be a number, not {kind_of(value)}")
    if not value >= 0:
        raise ValueError(f"{name}={value!r} must not be negative or NaN")
    return float(value)


def one_of(name: str, value: Any, choices: Mapping[str, str]) -> None:
    """One of some words. `choices`: these, and what each is for."""
    if not isinstance(value, str) or value not in choices:
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"{name}={value!r} must be " + ", or ".join(f'"{word}" ({meaning})' if meaning else f'"{word}"' for word, meaning in choices.items()))


def truth(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be True or False, not {kind_of(value)}")


def kind_of(value: Any) -> str:
    """The kind of a value, for people."""
    return f"the class {value.__name__}" if isinstance(value, type) else "None" if value is None else type(value).__name__


def check_model(model: Any) -> None:
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise TypeError(f"model is the class {model.__name__}: pass an instance, {model.__name__}(...)")
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, not {kind_of(model)}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("model is a ScriptModule, which torch.compile does not accept: pass the original model")
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if is_lazy(tensor):
            raise ValueError(f"{name} is lazy and has no shape yet: call the model once with real inputs first")
        if isinstance(tensor, DTensor):
            raise TypeError(f"{name} is a DTensor, split over several processes, which cannot be planned. Use DistributedDataParallel")
        if tensor.layout is not torch.strided:
            raise ValueError(f"{name} is sparse ({tensor.layout}): sparse parameters and buffers cannot be planned. Use a dense tensor")


def check_loss_fn(loss_fn: Any) -> None:
    if hasattr(loss_fn, "param_groups"):
        raise TypeError(f"loss_fn is an optimizer ({kind_of(loss_fn)}): pass it by name, optimizer=optimizer")
    if isinstance(loss_fn, type) and issubclass(loss_fn, nn.Module):
        raise TypeError(f"loss_fn is the class {loss_fn.__name__}: pass an instance, {loss_fn.__name__}()")
    if loss_fn is not None and not callable(loss_fn):
        raise TypeError(f"loss_fn must be a function of the model's output and the target, not {kind_of(loss_fn)}")


def check_optimizer(optimizer: Any) -> None:
    if optimizer is not None and not callable(optimizer) and not isinstance(optimizer, (list, tuple)) and not hasattr(optimizer, "step"):
        raise TypeError(
            f"optimizer must be an optimizer, its class (torch.optim.AdamW), or a function that takes parameters and returns one, not {kind_of(optimizer)}"
        )


def check_scaler(scaler: Any) -> None:
    if scaler is not None and not isinstance(scaler, torch.amp.GradScaler):
        raise TypeError(f"scaler must be a torch.amp.GradScaler, or None, not {kind_of(scaler)}")


def some_of(name: str, value: Any, known: Iterable[Tensor]) -> list[Tensor]:
    """One or several of the known parameters, as `torch.nn.utils.clip_grad_norm_` takes them."""
    several = isinstance(value, Iterable) and not isinstance(value, (Tensor, str, Mapping))
    found, ids = list(value) if several else [value], set(map(id, known))
    if wrong := [one for one in found if not isinstance(one, Tensor)]:
        raise TypeError(f"{name} must be parameters, as from model.parameters(), not {kind_of(wrong[0])}")
    if wrong := [one for one in found if id(one) not in ids]:
        raise ValueError(f"{name} has a tensor of shape {tuple(wrong[0].shape)} that is neither in the optimizer nor in the model")
    return found


def arguments_of(inputs: Any, loss_fn: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's positional and keyword arguments."""
    if isinstance(inputs, Mapping):
        if wrong := [key for key in inputs if not isinstance(key, str)]:
            raise TypeError(f"inputs has the key {wrong[0]!r}: its keys must be the names of the model's arguments")
        args, kwargs = (), dict(inputs)
    elif isinstance(inputs, (Tensor, tuple, list)):
        args, kwargs = ((inputs,) if isinstance(inputs, Tensor) else tuple(inputs)), {}
    else:
        raise TypeError(f"inputs must be a tensor, a tuple, or a dict of keywords for one batch, not {kind_of(inputs)}")
    if loss_fn is not None and len(args) < 2:
        raise TypeError("with a loss_fn, inputs must be a tuple that ends with the target: plan(model, (x, y), loss_fn=loss_fn)")
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, Tensor) and (leaf.layout is not torch.strided or leaf.is_nested):
            raise ValueError(f"inputs has a tensor that is {'nested' if leaf.is_nested else f'sparse ({leaf.layout})'}: only dense tensors can be planned")
        if type(leaf).__module__ == "numpy" and hasattr(leaf, "shape"):
            raise TypeError("inputs has a numpy array: convert it with torch.from_numpy(array)")
    return args, kwargs


def device_wanted(device: Any, model: nn.Module) -> torch.device:
    """Where a step would run: as was said, or where the model is."""
    if device is None:
        first = next((tensor for tensor in [*model.parameters(), *model.buffers()] if tensor.device.type != "meta"), None)
        found = torch.device("cpu") if first is None else first.device
    elif isinstance(device, (str, torch.device)) or type(device) is int:
        try:
            # A number is a GPU's, whatever this machine has.
            found = torch.device(f"cuda:{device}" if type(device) is int else device)
            known = type(device) is int and 0 <= device < 128 or str(found) == str(device)  # PyTorch counts modulo 256
        except RuntimeError:
            known = False
        if not known:
            raise ValueError(f'device={device!r} is not a device: write "cpu", "cuda" or "cuda:1"')
    else:
        raise TypeError(f'device must be a string such as "cpu" or "cuda", or a torch.device, not {kind_of(device)}')
    if found.type not in ("cpu", "cuda"):
        said = f"device={str(device)!r}" if device is not None else f"the model is on {found}"
        raise ValueError(f'{said}, which cannot be planned: use "cpu" or "cuda"')
    return found


def batches_of(batches: Any) -> list[int]:
    """Sizes of batches."""
    if isinstance(batches, (str, Mapping)) or not isinstance(batches, Iterable) or getattr(batches, "ndim", 1) != 1:
        raise TypeError(f"batches must be a list of whole numbers, not {kind_of(batches)}")
    sizes = [whole(f"batches[{i}]", size) for i, size in enumerate(batches)]
    if sizes and max(sizes) > LARGEST_BATCH:
        raise ValueError(f"batches has {max(sizes)}: it must be at most {LARGEST_BATCH}")
    return sizes
