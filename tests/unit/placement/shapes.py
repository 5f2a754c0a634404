"""Sizes of published models, from their public hyper-parameters: tensors by their shapes, at bits per weight."""

from __future__ import annotations

from dataclasses import dataclass

from jan_serve.core.placement import LayerParts, ModelParts


@dataclass(frozen=True)
class Shape:
    """ff: width of dense feed-forward layers. expert_ff: of each expert. shared_ff: of the experts that always run.

    n_dense: leading blocks without experts; every: one of so many blocks has experts. kv: (width of K, width of V) of a
    token in a block. attention: weights of a block's attention; 0: computed from the heads. bits: of the weights;
    expert_bits: of the experts' weights.
    """

    layers: int
    embd: int
    heads: int
    kv_heads: int
    head: int
    vocab: int
    ff: int = 0
    experts: int = 0
    used: int = 0
    expert_ff: int = 0
    shared_ff: int = 0
    n_dense: int = 0
    every: int = 1
    kv: tuple[int, int] = (0, 0)
    attention: int = 0
    bits: float = 4.85
    expert_bits: float = 4.85
    tied: bool = False

    def parts(self) -> ModelParts:
        """The blocks and the rest."""
        attention = self.attention or self.embd * self.head * 2 * (self.heads + self.kv_heads)
        kv = self.kv if any(self.kv) else (self.kv_heads * self.head,) * 2
        blocks: list[LayerParts] = []
        for number in range(self.layers):
            mixture = bool(self.experts) and number >= self.n_dense and number % self.every == self.every - 1
            ff = self.shared_ff if mixture else self.ff
            dense = attention + 3 * self.embd * ff + (self.embd * self.experts if mixture else 0)
            experts = 3 * self.embd * self.expert_ff * self.experts if mixture else 0
            blocks.append(LayerParts(int(dense * self.bits / 8), int(experts * self.expert_bits / 8), *kv))
        table = int(self.vocab * self.embd * 6.5 / 8)
        widest = max(self.ff, self.shared_ff, self.expert_ff * self.experts)
        return ModelParts(
            layers=tuple(blocks),
            input_bytes=table,
            output_bytes=table,
            tied_output=self.tied,
            largest_tensor=int(self.embd * widest * max(self.bits, self.expert_bits) / 8),
            n_expert=self.experts,
            n_expert_used=self.used,
            n_embd=self.embd,
            n_vocab=self.vocab,
            n_head=self.heads,
            width=2 * self.embd + max(2 * self.ff, self.used * (2 * self.expert_ff + self.embd)),
        )


# Sources: the models' config.json, as published with their weights. Quantisation: Q4_K_M on average, MXFP4 for gpt-oss.
SHAPES = {
    "Llama-3.1-8B": Shape(32, 4096, 32, 8, 128, 128_256, ff=14_336),
    "Llama-3.3-70B": Shape(80, 8192, 64, 8, 128, 128_256, ff=28_672),
    "Mixtral-8x7B": Shape(32, 4096, 32, 8, 128, 32_000, experts=8, used=2, expert_ff=14_336),
    "Qwen3-30B-A3B": Shape(48, 2048, 32, 4, 128, 151_936, experts=128, used=8, expert_ff=768),
    "Qwen3-235B-A22B": Shape(94, 4096, 64, 4, 128, 151_936, experts=128, used=8, expert_ff=1536),
    "gpt-oss-20b": Shape(
        24, 2880, 64, 8, 64, 201_088, experts=32, used=4, expert_ff=2880, bits=8.5, expert_bits=4.25
    ),
    "gpt-oss-120b": Shape(
        36, 2880, 64, 8, 64, 201_088, experts=128, used=4, expert_ff=2880, bits=8.5, expert_bits=4.25
    ),
    "GLM-4.5-Air": Shape(
        46, 4096, 96, 8, 128, 151_552, ff=10_944, experts=128, used=8, expert_ff=1408, shared_ff=1408, n_dense=1
    ),
    "Llama-4-Scout": Shape(48, 5120, 40, 8, 128, 202_048, experts=16, used=1, expert_ff=8192, shared_ff=8192),
    "DeepSeek-V2-Lite": Shape(
        27, 2048, 16, 16, 192, 102_400, ff=10_944, experts=64, used=6, expert_ff=1408, shared_ff=2816, n_dense=1,
        kv=(576, 512), attention=2048 * (16 * 192 + 576) + 512 * 16 * 256 + 16 * 128 * 2048,
    ),
    "DeepSeek-V3": Shape(
        61, 7168, 128, 128, 192, 129_280, ff=18_432, experts=256, used=8, expert_ff=2048, shared_ff=2048, n_dense=3,
        kv=(576, 512), attention=7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168,
    ),
}  # fmt: skip

PARAMETERS = {
    "Llama-3.1-8B": 8.0, "Llama-3.3-70B": 70.6, "Mixtral-8x7B": 46.7, "Qwen3-30B-A3B": 30.5, "Qwen3-235B-A22B": 235.0,
    "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8, "GLM-4.5-Air": 106.0, "Llama-4-Scout": 107.8,
    "DeepSeek-V2-Lite": 15.7, "DeepSeek-V3": 671.0,
}  # fmt: skip
"""Published, in billions."""
