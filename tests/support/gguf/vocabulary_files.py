"""GGUF files that hold a small vocabulary of each kind that llama.cpp knows, and no weights."""

# gguf has no stubs.
# pyright: basic

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import gguf
import msgspec

NORMAL, UNKNOWN, CONTROL, DEFINED, BYTE = 1, 2, 3, 4, 6
WORDS = (
    "hello",
    "world",
    "the",
    "and",
    "don",
    "ab",
    "abc",
    "aa",
    "aaaa",
    "42",
    "end",
    "字",
    "漢字",
    "мир",
    "é",
)
SPECIAL = ("<s>", "</s>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im|>", "im_start|>x")
USER = ("<tool>", "</tool>", "<|", "lo wo", "  ", "\n\n")

PRE_TOKENIZERS = (
    "default llama-bpe deepseek-llm deepseek-coder deepseek-v3 spark2_5 youtu falcon gpt-2 starcoder command-r qwen2"
    " qwen35 stablelm2 dbrx smaug-bpe poro-chat glm4 viking jais jais-2 tekken smollm bloom gpt3-finnish exaone"
    " exaone-moe chameleon minerva-7b gpt-4o llama4 tiny_aya superbpe trillion bailingmoe seed-coder hunyuan"
    " hunyuan-dense kimi-k2 ufakzeka grok-2 afmoe laguna minicpm5 granite-embed-multi-97m gemma4 sarvam-moe"
).split()


class VocabularyFile(msgspec.Struct, frozen=True):
    """model: as `tokenizer.ggml.model`. joins: also tokens that go on over the end of a word."""

    model: str
    pre: str = "default"
    name: str = "words"
    space_prefix: bool | None = None
    joins: bool = False

    def __str__(self) -> str:
        return "-".join(
            filter(None, (self.model, self.pre, self.name, str(self.space_prefix), "joins" * self.joins))
        )


KINDS = (
    *(VocabularyFile("gpt2", pre) for pre in PRE_TOKENIZERS),
    *(
        VocabularyFile("gpt2", pre, joins=True)
        for pre in ("superbpe", "gemma4", "exaone-moe", "bloom", "llama-bpe")
    ),
    VocabularyFile("gpt2", "gpt-2", "phi-3"),
    VocabularyFile("whitespace", "whitespace"),
    VocabularyFile("hybriddna", "gpt-2"),
    *(
        VocabularyFile("llama", space_prefix=prefix, joins=joins)
        for prefix in (True, False)
        for joins in (True, False)
    ),
    VocabularyFile("llama", name="phi-3", space_prefix=True),
    VocabularyFile("llama", name="phi-3", space_prefix=False),
    VocabularyFile("bert"),
    VocabularyFile("t5", space_prefix=True),
    VocabularyFile("t5", space_prefix=False),
    VocabularyFile("rwkv"),
    VocabularyFile("rwkv", joins=True),
)


def write_vocabulary(path: Path, kind: VocabularyFile) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(kind.name)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(32)
    writer.add_head_count(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model(kind.model)
    writer.add_tokenizer_pre(kind.pre)
    words = [*WORDS, *(("o wo", "d,", "end\n", "字 字") if kind.joins else ())]
    tokens = _TOKENS[kind.model](kind, words)
    writer.add_token_list(list(tokens))
    writer.add_token_types(list(tokens.values()))
    writer.add_token_scores([-float(number % 97) for number in range(len(tokens))])
    ids = list(tokens)
    if kind.model in ("gpt2", "whitespace", "hybriddna"):
        writer.add_token_merges(list(_merges(tokens)))
    for role in ("bos", "eos") if "<s>" in tokens else ():
        getattr(writer, f"add_{role}_token_id")(ids.index("<s>" if role == "bos" else "</s>"))
    if kind.model == "bert":
        for role, text in (
            ("bos", "[CLS]"),
            ("eos", "[SEP]"),
            ("sep", "[SEP]"),
            ("unk", "[UNK]"),
            ("pad", "[PAD]"),
        ):
            getattr(writer, f"add_{'sep' if role == 'sep' else role}_token_id")(ids.index(text))
    if kind.model in ("llama", "t5", "rwkv"):
        writer.add_unk_token_id(ids.index("<unk>"))
    if kind.space_prefix is not None:
        writer.add_bool("tokenizer.ggml.add_space_prefix", kind.space_prefix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _marked() -> dict[str, int]:
    return {text: CONTROL for text in SPECIAL} | {text: DEFINED for text in USER}


def _bpe(kind: VocabularyFile, words: Sequence[str]) -> dict[str, int]:
    """A vocabulary of bytes; of characters for the expressions that leave texts as they are."""
    if kind.pre in ("gemma4", "sarvam-moe", "whitespace"):
        spell = {chr(code): chr(code) for code in range(0x20, 0x7F)} | {" ": "▁", "\n": "\n"}
        texts = [*(word.replace(" ", "▁") for word in words), *("▁" + word for word in words)]
        letters = [*spell.values(), *dict.fromkeys("".join(texts))]
        texts = [*(f"<0x{byte:02X}>" for byte in range(256)), *letters, *_beginnings(texts)]
    else:
        texts = [
            *_BYTES.values(),
            *_beginnings([_spelled(word) for word in (*words, *(" " + word for word in words))]),
        ]
    dna = ("<dna>", "</dna>", "<oov>", "ACGTAC\ue000") if kind.model == "hybriddna" else ()
    return dict.fromkeys((*texts, *dna), NORMAL) | _marked() | {"<unk>": UNKNOWN}


def _spm(_kind: VocabularyFile, words: Sequence[str]) -> dict[str, int]:
    texts = [word.replace(" ", "▁") for word in words]
    characters = ["▁", *(chr(code) for code in range(0x21, 0x7F)), *"".join(texts)]
    pieces = [*_beginnings(texts), *_beginnings(["▁" + text for text in texts]), "▁▁", "▁▁▁▁"]
    found = {"<unk>": UNKNOWN} | _marked() | {f"<0x{byte:02X}>": BYTE for byte in range(256)}
    return found | {text: NORMAL for text in (*characters, *pieces) if text not in found}


def _wpm(_kind: VocabularyFile, words: Sequence[str]) -> dict[str, int]:
    characters = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isupper()]
    pieces = ["▁" + text for text in (*characters, *words)]
    special = {
        "[PAD]": CONTROL,
        "[UNK]": UNKNOWN,
        "[CLS]": CONTROL,
        "[SEP]": CONTROL,
        "<|im_start|>": CONTROL,
    }
    return special | dict.fromkeys((*pieces, *characters, *words), NORMAL)


def _rwkv(_kind: VocabularyFile, words: Sequence[str]) -> dict[str, int]:
    special = {"<unk>": UNKNOWN, "<|im_start|>": CONTROL, "<tool>": DEFINED}
    bytes_ = [f"\\x{byte:02x}" for byte in range(256)]
    return special | dict.fromkeys((*bytes_, *words, *(" " + word for word in words)), NORMAL)


def _beginnings(texts: Iterable[str]) -> list[str]:
    """Each text and what a merge makes on the way to it: its first two characters, three, and so on."""
    return [text[:end] for text in texts for end in range(2, len(text) + 1)]


def _merges(tokens: Mapping[str, int]) -> Iterable[str]:
    for text, kind in tokens.items():
        if kind == NORMAL and len(text) > 1 and text[:-1] in tokens and text[-1] in tokens:
            yield f"{text[:-1]} {text[-1]}"


def _byte_letters() -> dict[int, str]:
    """GPT-2's letters for bytes."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def _spelled(text: str) -> str:
    return "".join(_BYTES[byte] for byte in text.encode())


_BYTES = _byte_letters()
_TOKENS = {
    "gpt2": _bpe,
    "whitespace": _bpe,
    "hybriddna": _bpe,
    "llama": _spm,
    "t5": _spm,
    "bert": _wpm,
    "rwkv": _rwkv,
}
