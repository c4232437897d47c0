"""Models that ship with the package, and models of others by ``package.module:factory``.

A factory is called with ``(n_features, n_outputs, **options)`` and returns a `torch.nn.Module` that maps records
``[n, n_features]`` to outputs ``[n, n_outputs]``. Its initialisation may draw from torch's global generator only.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InvalidValue

Factory = Callable[..., nn.Module]

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU, "silu": nn.SiLU}


class UnitScale(nn.Module):
    """Brings every record ``[n, p]`` to a mean square of 1, by itself: networks start well whatever ``data.scale`` is."""

    def forward(self, records: Tensor) -> Tensor:
        return records * records.square().mean(-1, keepdim=True).add(1e-12).rsqrt()


def mlp(n_features: int, n_outputs: int, *, hidden: Sequence[int] = (64,), activation: str = "relu") -> nn.Module:
    """A multilayer perceptron.

    Args:
        hidden: width of each hidden layer, maybe none.
        activation: ``relu``, ``tanh``, ``gelu`` or ``silu``.

    Raises:
        InvalidValue: naming ``problem.model_options``.
    """
    if not all(isinstance(width, int) and width > 0 for width in hidden):
        raise _wrong({"hidden": list(hidden)}, "give a list of whole numbers > 0")
    widths = [n_features, *hidden]
    layers: list[nn.Module] = [UnitScale()]
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), _activation(activation)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], n_outputs))


def cnn(
    n_features: int,
    n_outputs: int,
    *,
    image: Sequence[int] | None = None,
    channels: Sequence[int] = (8, 16),
    hidden: int = 32,
    activation: str = "relu",
) -> nn.Module:
    """A small convolutional network: 3×3 convolutions, each followed by 2×2 mean pooling, and one hidden layer.

    Args:
        image: (height, width) or (channels, height, width) of a record; left out, one square channel.
        channels: outputs of each convolution; every one halves height and width.
        hidden: width of the hidden layer, 0 for none.
        activation: ``relu``, ``tanh``, ``gelu`` or ``silu``.

    Raises:
        InvalidValue: naming ``problem.model_options``, where records are no images of that shape.
    """
    side = math.isqrt(n_features)
    shape = tuple(image) if image is not None else (side, side)
    shape = (1, *shape) if len(shape) == 2 else shape
    if len(shape) != 3 or not all(isinstance(n, int) and n > 0 for n in shape) or math.prod(shape) != n_features:
        cure = f"a record has {n_features} features; give the image's shape, and leave the bias column out (data.bias = false)"
        raise _wrong({"image": None if image is None else list(image)}, cure)
    if not all(isinstance(n, int) and n > 0 for n in channels):
        raise _wrong({"channels": list(channels)}, "give a list of whole numbers > 0")
    depth, height, width = shape
    layers: list[nn.Module] = [UnitScale(), nn.Unflatten(-1, shape)]
    for outer in channels:
        if min(height, width) < 2:
            raise _wrong(
                {"channels": list(channels)},
                f"each layer halves the image, {shape[1]}×{shape[2]} has too few for these",
            )
        layers += [nn.Conv2d(depth, outer, 3, padding=1), _activation(activation), nn.AvgPool2d(2)]
        depth, height, width = outer, height // 2, width // 2
    layers.append(nn.Flatten(-3))
    last = depth * height * width
    if hidden:
        layers += [nn.Linear(last, hidden), _activation(activation)]
        last = hidden
    return nn.Sequential(*layers, nn.Linear(last, n_outputs))


SHIPPED: dict[str, Factory] = {"mlp": mlp, "cnn": cnn}


def find_factory(model: str | Factory) -> Factory:
    """The factory of a shipped model, of ``package.module:factory``, or the one given.

    Raises:
        InvalidValue: naming ``problem.model``, where nothing can be called by that name.
    """
    if callable(model):
        return model
    if model in SHIPPED:
        return SHIPPED[model]
    name, colon, attribute = model.partition(":")
    if not (name and colon and attribute):
        raise InvalidValue("problem.model", model, f'give {", ".join(SHIPPED)} or "package.module:factory"')
    try:
        found = import_module(name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        cure = f"it cannot be imported ({error}); install it, or put its folder on PYTHONPATH"
        raise InvalidValue("problem.model", model, cure) from None
    except AttributeError:
        raise InvalidValue("problem.model", model, f"module {name} has no {attribute}") from None
    if not callable(found):
        raise InvalidValue("problem.model", model, f"{attribute} of module {name} cannot be called")
    factory: Factory = found
    return factory


def build_model(
    model: str | Factory, n_features: int, n_outputs: int, options: Mapping[str, Any], seed: int
) -> nn.Module:
    """A model with the initialisation that ``seed`` gives; torch's global generators stay as they are.

    Args:
        seed: 64 bits; the same number gives the same parameters.

    Raises:
        InvalidValue: the factory is missing, takes no such options, fails, or its model cannot be trained here.
    """
    factory = find_factory(model)
    shown = model if isinstance(model, str) else getattr(model, "__qualname__", repr(model))
    try:
        inspect.signature(factory).bind(n_features, n_outputs, **options)
    except TypeError as error:
        raise _wrong(dict(options), f"model {shown} cannot be called with these: {error}") from None
    except ValueError:  # a callable without a signature
        pass
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        try:
            made = factory(n_features, n_outputs, **options)
        except InvalidValue:
            raise
        except Exception as error:
            raise InvalidValue("problem.model", shown, f"its factory raised {type(error).__name__}: {error}") from error
    _check(made, shown, n_features, n_outputs)
    return made


def _check(made: Any, shown: str, n_features: int, n_outputs: int) -> None:
    """Refuse what clients could not train: state beside the parameters, ties between records, randomness, other shapes."""

    def refuse(cure: str) -> InvalidValue:
        return InvalidValue("problem.model", shown, cure)

    if not isinstance(made, nn.Module):
        raise refuse(f"its factory must return a torch.nn.Module, not {type(made).__name__}")
    for name, part in made.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            raise refuse(
                f"{name or 'it'} is batch normalisation, which ties the records of a batch together; take GroupNorm"
            )
        if isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0:
            raise refuse(f"{name or 'it'} is dropout, whose draws are not keyed; leave it out")
    if buffer := next((name for name, _ in made.named_buffers()), None):
        raise refuse(
            f"{buffer} is a buffer, which clients would change without releasing it; take a model without buffers"
        )
    parameters = dict(made.named_parameters())
    if not parameters:
        raise refuse("it has no parameters to train")
    for name, value in parameters.items():
        if not value.is_floating_point() or not value.requires_grad:
            raise refuse(f"{name} is not trained; make it a constant of the module, or train it")
    probe = torch.zeros(2, n_features, dtype=next(iter(parameters.values())).dtype)
    try:
        with torch.no_grad():
            shape = tuple(made(probe).shape)
    except Exception as error:
        raise refuse(f"it fails on records of {n_features} features: {error}") from None
    if shape != (2, n_outputs) and not (n_outputs == 1 and shape == (2,)):
        raise refuse(f"it gives outputs of shape {shape} for 2 records; give ({2}, {n_outputs})")


def _activation(name: str) -> nn.Module:
    if name not in _ACTIVATIONS:
        raise _wrong({"activation": name}, f"give one of {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]()


def _wrong(options: dict[str, Any], cure: str) -> InvalidValue:
    return InvalidValue("problem.model_options", options, cure)
