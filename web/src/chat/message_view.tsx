// One message: text, thoughts, calls, images and its buttons.
import { useState } from "preact/hooks";
import { memo } from "preact/compat";
import { edit, isAnswering, regenerate, showVersion } from "../state/conversations";
import type { Message } from "../state/conversation";
import { models } from "../state/models";
import { numbersOf } from "../state/versions";
import { CopyButton } from "../ui/copy";
import { useFocus } from "../ui/focus";
import { rate } from "../ui/format";
import { Icon } from "../ui/icons";
import { MarkdownView } from "../ui/markdown_view";
import { CallResults, CallView } from "./tool_calls";

interface Props {
  message: Message;
  isLast: boolean;
  isWriting: boolean;
}

const ENDINGS: Record<string, string> = {
  length: "The answer reached its limit of tokens.",
  stopped: "Stopped.",
  content_filter: "The answer was withheld.",
};

export const MessageView = memo(function MessageView({ message, isLast, isWriting }: Props) {
  switch (message.role) {
    case "user":
      return <Question message={message} />;
    case "tool":
      return (
        <article class="message tool" aria-label="Result of a tool">
          <div class="label">Result</div>
          {message.text !== "" && <pre class="plain">{message.text}</pre>}
          {message.attachments?.map((file, index) => <img key={index} class="picture" src={file.content} alt={file.name} />)}
        </article>
      );
    case "assistant":
      return <Answer message={message} isLast={isLast} isWriting={isWriting} />;
  }
});

function Question({ message }: { message: Message }) {
  const [draft, setDraft] = useState<string | null>(null);
  const save = (event: SubmitEvent) => {
    event.preventDefault();
    if (draft?.trim()) void edit(message.id, draft.trim());
    setDraft(null);
  };
  if (draft !== null) {
    return (
      <article class="message user editing">
        <form onSubmit={save}>
          <DraftField text={draft} onInput={setDraft} />
          <div class="actions">
            <button type="button" onClick={() => setDraft(null)}>
              Cancel
            </button>
            <button type="submit" class="primary">
              Ask again
            </button>
          </div>
        </form>
      </article>
    );
  }
  return (
    <article class="message user" aria-label="Question">
      {message.attachments?.map((file, index) =>
        file.kind === "image" ? <img key={index} class="picture" src={file.content} alt={file.name} /> : <div key={index} class="file">{file.name}</div>,
      )}
      {message.text !== "" && <div class="bubble">{message.text}</div>}
      <div class="tools">
        <CopyButton text={message.text} label="Copy question" />
        <button type="button" class="quiet" disabled={isAnswering.value} onClick={() => setDraft(message.text)}>
          <Icon name="edit" /> Edit
        </button>
        <Versions message={message} />
      </div>
    </article>
  );
}

function DraftField({ text, onInput }: { text: string; onInput: (text: string) => void }) {
  const field = useFocus<HTMLTextAreaElement>();
  return <textarea ref={field} aria-label="Edit your question" rows={3} value={text} onInput={(event) => onInput(event.currentTarget.value)} />;
}

function Answer({ message, isLast, isWriting }: Props) {
  const { text, reasoning, calls, error, finish, timings, warnings } = message;
  const ending = finish === undefined ? undefined : ENDINGS[finish];
  const nothing = !text && !reasoning && !calls?.length;
  return (
    <article class="message assistant" aria-label="Answer" aria-busy={isWriting}>
      {reasoning && <Thoughts text={reasoning} thinking={isWriting && !text && !calls?.length} />}
      {text && <MarkdownView text={text} />}
      {calls?.map((call, index) => <CallView key={index} call={call} />)}
      {isWriting && nothing && <Waiting model={message.model ?? ""} />}
      {error && (
        <p class="problem" role="alert">
          {error}
        </p>
      )}
      {warnings?.map((warning) => (
        <p key={warning} class="hint">
          {warning}
        </p>
      ))}
      {ending && <p class="hint">{ending}</p>}
      {isLast && !isWriting && calls && calls.length > 0 && <CallResults answer={message.id} calls={calls} />}
      {!isWriting && (
        <div class="tools">
          {text && <CopyButton text={text} label="Copy answer" />}
          <button type="button" class="quiet" disabled={isAnswering.value} onClick={() => void regenerate(message.id)}>
            <Icon name="again" /> Regenerate
          </button>
          <Versions message={message} />
          {timings && timings.predicted_n > 0 && (
            <span class="hint" title={`${timings.prompt_n} prompt tokens computed, ${timings.cache_n} from the cache`}>
              {message.model} · {timings.predicted_n} tokens · {rate(timings.predicted_per_second)} tokens/s
            </span>
          )}
        </div>
      )}
    </article>
  );
}

/** ‹ 1/2 ›: steps through what was edited or generated again. */
function Versions({ message }: { message: Message }) {
  const numbers = numbersOf(message);
  const at = numbers.indexOf(message.version ?? 0);
  if (numbers.length === 1) return null;
  const step = (by: number, name: string, sign: string) => {
    const version = numbers[at + by];
    return (
      <button type="button" class="quiet small" aria-label={name} disabled={isAnswering.value || version === undefined} onClick={() => version !== undefined && showVersion(message.id, version)}>
        {sign}
      </button>
    );
  };
  return (
    <span class="versions" role="group" aria-label="Versions">
      {step(-1, "Earlier version", "‹")}
      <span>
        {at + 1}/{numbers.length}
      </span>
      {step(1, "Later version", "›")}
    </span>
  );
}

/** Shown until the first token, while the model loads or the prompt is computed. */
function Waiting({ model }: { model: string }) {
  const status = models.value.find(({ id }) => id === model)?.status;
  if (status?.value === "loading") {
    return (
      <label class="loading">
        Loading {model}…
        <progress max={1} {...(status.progress ? { value: status.progress.value } : {})} />
      </label>
    );
  }
  return (
    <div class="waiting" aria-hidden="true">
      <i /> <i /> <i />
    </div>
  );
}

function Thoughts({ text, thinking }: { text: string; thinking: boolean }) {
  return (
    <details class="thoughts">
      <summary>{thinking ? "Thinking…" : "Thoughts"}</summary>
      <MarkdownView text={text} />
    </details>
  );
}
