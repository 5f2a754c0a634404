"""Shapes of models that people run, in few layers: what a random-weight model to measure with consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import gguf

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Sizes of gated delta nets. Every fourth block has attention in place of one."""

    n_group: int
    n_head: int
    state_size: int
    kernel: int = 4
    every: int = 4

    @property
    def inner(self) -> int:
        return self.n_head * self.state_size

    @property
    def convolved(self) -> int:
        return self.inner + 2 * self.n_group * self.state_size


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model. Widths are multiples of 256, else llama.cpp quantises some tensors differently.

    head_size: n_embd / n_head if 0. n_ff: of one expert, if there are experts.
    """

    n_vocab: int = 151_936
    n_embd: int = 896
    n_layer: int = 24
    n_head: int = 14
    n_head_kv: int = 2
    n_ff: int = 4_864
    n_ctx: int = 32_768
    architecture: str = "qwen2"
    head_size: int = 0
    n_expert: int = 0
    n_expert_used: int = 0
    delta: DeltaNet | None = None

    def tensor_shapes(self) -> dict[str, Dims]:
        """Row-major shapes by GGUF name."""
        shapes: dict[str, Dims] = {
            "token_embd.weight": (self.n_vocab, self.n_embd),
            "output_norm.weight": (self.n_embd,),
        }
        if self.architecture == "gpt-oss":
            shapes["output.weight"] = (self.n_vocab, self.n_embd)
        for layer in range(self.n_layer):
            has_delta = self.delta is not None and (layer + 1) % self.delta.every
            mixer = self._delta_net() if has_delta else self._attention()
            parts = mixer | (self._experts() if self.n_expert else self._feed_forward())
            shapes |= {f"blk.{layer}.{name}": dims for name, dims in parts.items()}
        return shapes

    def add_keys(self, writer: gguf.GGUFWriter) -> None:
        """Add the header's keys that name these sizes, beyond those of every architecture."""
        writer.add_head_count_kv(self.n_head_kv)
        writer.add_layer_norm_rms_eps(1e-6)
        writer.add_rope_freq_base(1e6)
        if self.head_size:
            writer.add_key_length(self.head_size)
            writer.add_value_length(self.head_size)
        if self.n_expert:
            writer.add_expert_count(self.n_expert)
            writer.add_expert_used_count(self.n_expert_used)
            writer.add_expert_feed_forward_length(self.n_ff)
        if self.architecture == "gpt-oss":
            writer.add_sliding_window(128)
        if self.delta is not None:
            writer.add_rope_dimension_count(self.head_size // 4)
            writer.add_rope_dimension_sections([11, 11, 10, 0])
            writer.add_ssm_conv_kernel(self.delta.kernel)
            writer.add_ssm_state_size(self.delta.state_size)
            writer.add_ssm_inner_size(self.delta.inner)
            writer.add_ssm_time_step_rank(self.delta.n_head)
            writer.add_ssm_group_count(self.delta.n_group)
            writer.add_full_attention_interval(self.delta.every)

    def _attention(self) -> dict[str, Dims]:
        head = self.head_size or self.n_embd // self.n_head
        query, kv = self.n_head * head, self.n_head_kv * head
        gates = 2 if self.delta is not None else 1
        parts: dict[str, Dims] = {
            "attn_norm.weight": (self.n_embd,),
            "attn_q.weight": (gates * query, self.n_embd),
            "attn_k.weight": (kv, self.n_embd),
            "attn_v.weight": (kv, self.n_embd),
            "attn_output.weight": (self.n_embd, query),
        }
        if self.architecture in ("qwen2", "gpt-oss"):
            parts |= {"attn_q.bias": (query,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        else:
            parts |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        if self.architecture == "gpt-oss":
            parts |= {"attn_output.bias": (self.n_embd,), "attn_sinks.weight": (self.n_head,)}
        return parts

    def _delta_net(self) -> dict[str, Dims]:
        assert self.delta is not None
        sizes = self.delta
        return {
            "attn_norm.weight": (self.n_embd,),
            "attn_qkv.weight": (sizes.convolved, self.n_embd),
            "attn_gate.weight": (sizes.inner, self.n_embd),
            "ssm_conv1d.weight": (sizes.convolved, sizes.kernel),
            "ssm_norm.weight": (sizes.state_size,),
            "ssm_alpha.weight": (sizes.n_head, self.n_embd),
            "ssm_beta.weight": (sizes.n_head, self.n_embd),
            "ssm_out.weight": (self.n_embd, sizes.inner),
            "ssm_dt.bias": (sizes.n_head,),
            "ssm_a": (sizes.n_head,),
        }

    def _feed_forward(self) -> dict[str, Dims]:
        norm = "ffn_norm" if self.delta is None else "post_attention_norm"
        return {
            f"{norm}.weight": (self.n_embd,),
            "ffn_gate.weight": (self.n_ff, self.n_embd),
            "ffn_up.weight": (self.n_ff, self.n_embd),
            "ffn_down.weight": (self.n_embd, self.n_ff),
        }

    def _experts(self) -> dict[str, Dims]:
        has_bias = self.architecture == "gpt-oss"
        norm = "post_attention_norm" if has_bias else "ffn_norm"
        matrices: dict[str, Dims] = {
            "ffn_gate_inp": (self.n_expert, self.n_embd),
            "ffn_gate_exps": (self.n_expert, self.n_ff, self.n_embd),
            "ffn_up_exps": (self.n_expert, self.n_ff, self.n_embd),
            "ffn_down_exps": (self.n_expert, self.n_embd, self.n_ff),
        }
        parts: dict[str, Dims] = {f"{norm}.weight": (self.n_embd,)}
        parts |= {f"{name}.weight": dims for name, dims in matrices.items()}
        if has_bias:
            parts |= {f"{name}.bias": dims[:-1] for name, dims in matrices.items()}
        return parts


SHAPES: Final = {
    "qwen2.5-0.5b": Shape(),
    "k-quants": Shape(n_vocab=100_000, n_embd=2_048, n_layer=14, n_head=16, n_head_kv=4, n_ff=6_144),
    "qwen3-8b": Shape(
        n_vocab=32_000,
        architecture="qwen3",
        n_embd=4_096,
        n_layer=3,
        n_head=32,
        n_head_kv=8,
        head_size=128,
        n_ff=12_288,
    ),
    "qwen3-30b-a3b": Shape(
        n_vocab=32_000,
        architecture="qwen3moe",
        n_embd=2_048,
        n_layer=2,
        n_head=32,
        n_head_kv=4,
        head_size=128,
        n_ff=768,
        n_expert=128,
        n_expert_used=8,
    ),
    "gpt-oss-20b": Shape(
        n_vocab=32_000,
        architecture="gpt-oss",
        n_embd=2_880,
        n_layer=1,
        n_head=64,
        n_head_kv=8,
        head_size=64,
        n_ff=2_880,
        n_expert=32,
        n_expert_used=4,
    ),
    "qwen3.5-4b": Shape(
        n_vocab=32_000,
        architecture="qwen35",
        n_embd=2_560,
        n_layer=4,
        n_head=16,
        n_head_kv=4,
        head_size=256,
        n_ff=9_216,
        delta=DeltaNet(n_group=16, n_head=32, state_size=128),
    ),
}
