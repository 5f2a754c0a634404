"""The fake engine's vocabulary (the 256 bytes, BOS and EOS) and the facts that it reports. Pure."""

from __future__ import annotations

import hashlib
import math
import struct

from jan_serve.core.events import TokenInfo, TokenLogprob
from jan_serve.core.models import DeviceInfo, ModelFacts, SpecialToken
from jan_serve.ipc.messages import EngineSettings

BOS, EOS = 256, 257
N_VOCAB = 258
N_EMBD = 8
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{{ tools | tojson if tools }}{{ documents | tojson if documents }}{{ number }}"
    "<|im_start|>assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)


def to_tokens(text: str) -> tuple[int, ...]:
    """One token a byte."""
    return tuple(text.encode())


def to_text(tokens: tuple[int, ...]) -> str:
    """Inverse of `to_tokens`; special tokens are skipped."""
    return bytes(token for token in tokens if token < 256).decode("utf-8", "replace")


def infos(text: str, top: int | None, *, first: bool = False) -> tuple[TokenInfo, ...]:
    """Tokens with invented but constant log-probabilities; the first prompt token has none."""
    result: list[TokenInfo] = []
    for number, token in enumerate(to_tokens(text)):
        if top is None or (first and number == 0):
            result.append(TokenInfo(token, piece_of(token)))
            continue
        ranks = range(top)
        best = tuple(TokenLogprob((token + i) % 256, piece_of((token + i) % 256), -0.5 - i) for i in ranks)
        result.append(TokenInfo(token, piece_of(token), False, -0.5, best))
    return tuple(result)


def piece_of(token: int) -> bytes:
    """The bytes of a token."""
    return bytes([token]) if token < 256 else (b"<s>" if token == BOS else b"</s>")


def vector_of(tokens: tuple[int, ...]) -> bytes:
    """A unit vector from a hash."""
    digest = hashlib.sha256(repr(tokens).encode()).digest()[:N_EMBD]
    values = [byte - 127.5 for byte in digest]
    norm = math.sqrt(sum(value * value for value in values))
    return struct.pack(f"<{N_EMBD}f", *(value / norm for value in values))


def facts_of(name: str, settings: EngineSettings) -> ModelFacts:
    """What a small llama would report. Named "infill" it has the tokens for that, ordinary ones."""
    special = {"bos": SpecialToken(BOS, "<s>"), "eos": SpecialToken(EOS, "</s>")}
    if "infill" in name:
        special |= {role: SpecialToken(ord(role[4]), role) for role in ("fim_pre", "fim_suf", "fim_mid")}
    cpu = DeviceInfo(name="CPU", description="fake", kind="cpu", free_bytes=2**33, total_bytes=2**34)
    template = THINKING_TEMPLATE if "thinks" in name else CHAT_TEMPLATE
    return ModelFacts(
        description="fake 1B Q8_0",
        architecture="fake",
        n_ctx=settings.n_ctx or 4096,
        n_ctx_train=4096,
        n_vocab=N_VOCAB,
        n_embd=N_EMBD,
        n_params=1_000_000,
        size_bytes=settings.parts.weights or 1_000_000,
        parallel=settings.parallel or 4,
        threads=settings.threads or 1,
        n_gpu_layers=0,
        n_layer=1,
        device="CPU",
        devices=(cpu,),
        pooling="mean",
        is_embedding_model="embed" in name,
        is_recurrent=False,
        special_tokens=special,
        eog_token_ids=(EOS,),
        add_bos=True,
        add_eos=False,
        chat_templates={} if "no-template" in name else {"default": template},
        metadata={
            "general.architecture": "fake",
            "general.name": name,
            "context_bytes": str(settings.context_bytes),
        },
    )
