from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMPILES = """
import sys, threading
sys.path[:0] = [{app!r}, {root!r}]
import llguidance
from jan_serve.engine.constraint.grammar_factory import MAX_DEPTH, STACK_BYTES, check_lark
from tests.integration.engine.constraint.test_grammar_factory import WRAPPED, chain
class Bytes:
    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]
    tokens = [bytes([i]) for i in range(256)] + [b"</s>"]
    def __call__(self, text):
        return list(text.encode() if isinstance(text, str) else text)
tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Bytes()), n_vocab=257)
texts = [chain(MAX_DEPTH - 2), chain(MAX_DEPTH // 13 - 1, WRAPPED), chain(MAX_DEPTH // 2 - 1, '("a" {{next}})?')]
texts += [text.replace("r_", "T_") for text in texts]
def work():
    for text in texts:
        check_lark(text)
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(text), log_level=0)
        assert not matcher.is_error(), matcher.get_error()[:200]
        matchers.append(matcher)
matchers = []
threading.stack_size(STACK_BYTES // 2)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(len(matchers))
"""


def test_llguidance_compiles_what_passes_with_half_of_the_stack() -> None:
    root = Path(__file__).resolve().parents[4]
    script = COMPILES.format(app=str(root / "app"), root=str(root))
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "6\n"), ended.stderr
