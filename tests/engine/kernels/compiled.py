"""Compiles what a launch would compile, for a GPU that is not here, and checks that it fits.

Triton's compiler needs no GPU; only the launch does. So a kernel is replaced by a stand-in that takes the arguments of
a launch, specialises on them as Triton would (pointers and integers that 16 divides, integers that are 1) and compiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SHARED_MEMORY = {80: 163 * 1024, 90: 227 * 1024}
"""Bytes that one program may have, by compute capability (CUDA C++ Programming Guide, technical specifications)."""

NAMES = {
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.int32: "i32",
    torch.int64: "i64",
}


class Compiled:
    """In a kernel's place: `kernel[grid](…)` compiles it and launches nothing."""

    def __init__(self, kernel: Any, capability: int) -> None:
        self.kernel = kernel
        self.capability = capability
        self.assembly: list[str] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        assert all(size > 0 for size in grid)
        return self._compile

    def _compile(self, *args: Any, **kwargs: Any) -> None:
        options = {key: kwargs.pop(key) for key in list(kwargs) if key not in self.kernel.arg_names}
        given = dict(zip(self.kernel.arg_names, args, strict=False)) | kwargs
        assert given.keys() == set(self.kernel.arg_names)
        signature, constants, attributes = {}, {}, {}
        for index, parameter in enumerate(self.kernel.params):
            value = given[parameter.name]
            one = type(value) is int and value == 1 and not parameter.do_not_specialize
            if parameter.is_constexpr or value is None or one:
                signature[parameter.name], constants[parameter.name] = "constexpr", value
                continue
            signature[parameter.name] = _type(value)
            aligned = value.data_ptr() if isinstance(value, torch.Tensor) else value
            if not parameter.do_not_specialize and isinstance(aligned, int) and aligned % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
        source = ASTSource(self.kernel, signature, constants, attributes)
        done = triton.compile(source, target=GPUTarget("cuda", self.capability, 32), options=options)
        assert done.asm["cubin"]
        assert done.metadata.shared <= SHARED_MEMORY[self.capability]
        self.assembly.append(done.asm["ptx"])


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "*" + NAMES[value.dtype]
    return "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"


@contextmanager
def compiling(capability: int, *modules: ModuleType) -> Iterator[dict[str, Compiled]]:
    """Every kernel of these modules replaced by a `Compiled`, by name."""
    with pytest.MonkeyPatch.context() as patch:
        found = {}
        for module in modules:
            for name in [name for name in vars(module) if name.endswith("_kernel")]:
                if name not in found:
                    found[name] = Compiled(getattr(module, name), capability)
                patch.setattr(module, name, found[name])
        yield found
        assert all(kernel.assembly for kernel in found.values()), "not all were launched"
