# SPDX-License-Identifier: Apache-2.0
"""How a train step computes what it computes."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from kvnmt.fields import at_least, between, idle_while
from kvnmt.layers import Scanning, joining_pays, merging_pays

Dtype: TypeAlias = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class StepOptions:
    """How a step is computed; the sum over a batch is the same."""

    # type of matrix products; parameters, softmax and memories stay float32
    dtype: Dtype = "float32"
    # how an accelerator computes float32 products. fast: by its own default, bfloat16
    # on a TPU, TF32 on newer NVIDIA GPUs; float32: with all bits, slower. A CPU has
    # only float32.
    precision: Literal["fast", "float32"] = "fast"
    # what a step of a scan keeps for the gradient: all products, or those that are
    # vectors; auto: products on a CPU, vectors on an accelerator.
    residuals: Literal["auto", "products", "vectors"] = "auto"
    # whether products of one array with several matrices are one product, states are
    # written once, and the encoder reads in both directions at once, which starts fewer
    # kernels; auto: merged on a GPU, apart on a CPU; on a TPU, the encoder alone.
    products: Literal["auto", "apart", "merged"] = "auto"
    # keep the state of every Nth target step only, and compute the others again for
    # the gradient (less memory); 0: keep the residuals of every step.
    remat: Annotated[int, at_least(0)] = 0
    # parts of a batch that are computed one after the other (less memory).
    accumulate: Annotated[int, between(1, 2**16)] = 1
    # translate with a running mean of the parameters (EMA) of this decay; 0: with the
    # last parameters.
    ema: Annotated[float, between(0, 0.999999)] = 0.0
    # whether that mean is of a few steps at first, so that it soon forgets how arrays
    # were drawn; if not, it begins as the parameters that training starts from.
    ema_ramp: Annotated[bool, idle_while(ema=0.0)] = True
    # arrays that are not trained: encoder, target_embedding, or names with a *.
    frozen: tuple[str, ...] = ()

    def scanning(self, platform: str) -> Scanning:
        """How scans are computed on a kind of device."""
        residuals, merged = self.residuals, self.products == "merged"
        joined = merged
        if residuals == "auto":
            residuals = "products" if platform == "cpu" else "vectors"
        if self.products == "auto":
            merged, joined = merging_pays(platform), joining_pays(platform)
        return Scanning(residuals, self.remat, merged, joined)
