// What a question with files or much text takes of the context, counted before it is sent.
import { useEffect, useState } from "preact/hooks";
import { messageOf, postJson, wasAborted } from "../api/http";
import { open } from "../state/conversations";
import { chatRequest, withEdit } from "../state/conversation";
import type { Attachment } from "../state/conversation";
import { currentModel } from "../state/models";

const WAIT_MS = 600;
const LONG_CHARS = 2_000;

interface Count {
  tokens?: number;
  problem?: string;
}

export function TokenCount({ text, attached, edited }: { text: string; attached: Attachment[]; edited: string | null }) {
  const [count, setCount] = useState<Count | null>(null);
  const model = currentModel.value;
  // Counting would load another model.
  const counts = model?.status.value === "loaded" && (attached.length > 0 || text.length > LONG_CHARS);
  useEffect(() => {
    setCount(null);
    if (!counts) return;
    const ending = new AbortController();
    const messages = withEdit(open.value.messages, edited ?? "", text.trim(), attached);
    const timer = window.setTimeout(() => {
      countTokens({ ...open.value, messages }, model.id, ending.signal).then(
        (tokens) => setCount({ tokens }),
        (error: unknown) => wasAborted(error) || setCount({ problem: messageOf(error) }),
      );
    }, WAIT_MS);
    return () => {
      window.clearTimeout(timer);
      ending.abort();
    };
  }, [text, attached, edited, counts, model?.id]);
  if (count === null) return null;
  if (count.problem !== undefined) return <p class="problem">{count.problem}</p>;
  const most = model?.context_length;
  const fits = most == null || count.tokens! < most;
  return (
    <p class={fits ? "hint" : "problem"} role="status">
      {fits ? `${count.tokens} tokens with the chat before` : `This does not fit: ${count.tokens} tokens with the chat before, and the context has ${most}`}
      {fits && most != null && ` of ${most}`}
    </p>
  );
}

async function countTokens(conversation: typeof open.value, model: string, signal: AbortSignal): Promise<number> {
  const request = chatRequest(conversation, model);
  return (await postJson<{ input_tokens: number }>("v1/chat/completions/input_tokens", request, signal)).input_tokens;
}
