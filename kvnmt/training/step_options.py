# SPDX-License-Identifier: Apache-2.0
"""How a train step computes what it computes."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from kvnmt.fields import at_least, between
from kvnmt.layers import Scanning

Dtype: TypeAlias = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class StepOptions:
    """How a step computes what it computes; the sum is the same."""

    dtype: Dtype = "float32"  # of products; parameters, softmax, memories: float32
    # how float32 products are computed on an accelerator. fast: as it does by itself,
    # in bfloat16 on a TPU, in TF32 on newer NVIDIA; float32: in all bits, slower. A CPU
    # knows float32 alone.
    precision: Literal["fast", "float32"] = "fast"
    # what a step of a scan keeps for the gradient: all products, or those that are
    # vectors; auto: products on a CPU, vectors on an accelerator.
    residuals: Literal["auto", "products", "vectors"] = "auto"
    # whether products of one array with several matrices are one product, and states
    # are written once, which starts fewer kernels; auto: merged on a GPU, apart on a
    # CPU and a TPU.
    products: Literal["auto", "apart", "merged"] = "auto"
    # target steps between those of which anything is kept; all between is computed
    # again. 0: each keeps its residuals.
    remat: Annotated[int, at_least(0)] = 0
    # parts of a batch that are computed one after the other.
    accumulate: Annotated[int, between(1, 2**16)] = 1
    # the parameters that translate are a mean, decaying so; 0: they are the last.
    ema: Annotated[float, between(0, 0.999999)] = 0.0
    # arrays that stay as they are: encoder, target_embedding, or parts with a *.
    frozen: tuple[str, ...] = ()

    def scanning(self, platform: str) -> Scanning:
        """How scans are computed on a kind of device."""
        residuals, products = self.residuals, self.products
        if residuals == "auto":
            residuals = "products" if platform == "cpu" else "vectors"
        if products == "auto":
            products = "apart" if platform in ("cpu", "tpu") else "merged"
        return Scanning(residuals, self.remat, products == "merged")
