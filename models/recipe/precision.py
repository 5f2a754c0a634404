"""The precision of matrix products in training."""

# The training packages are apart from the product's environment, in which types are checked.
# pyright: reportMissingImports=false

from __future__ import annotations

import torch

# Where a processor does not multiply bfloat16 (AVX2), such products take nine times as long as those of float32.
PRODUCTS: torch.dtype = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
