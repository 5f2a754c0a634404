// The field for questions.
import { useRef } from "preact/hooks";
import { ask, edit, isAnswering, open, stop } from "../state/conversations";
import type { Attachment } from "../state/conversation";
import { currentModel, seesImages } from "../state/models";
import { changeUnsent, dropUnsent, unsentIn } from "../state/unsent";
import { useFocus } from "../ui/focus";
import { bytes } from "../ui/format";
import { Icon } from "../ui/icons";
import { say } from "../ui/notice";
import { MAX_ATTACHMENTS, readAttachment, sentBytes } from "./attachments";
import { TokenCount } from "./token_count";

export function Composer() {
  const { id, messages } = open.value;
  const { text, attached, edited: editedId } = unsentIn(id);
  // Another tab may have dropped the question meanwhile.
  const edited = messages.find((message) => message.id === editedId);
  const field = useFocus<HTMLTextAreaElement>();
  const picker = useRef<HTMLInputElement>(null);
  const images = seesImages(currentModel.value);
  const ready = (text.trim() !== "" || attached.length > 0) && currentModel.value !== undefined;

  const send = () => {
    if (!ready || isAnswering.value) return;
    const question = text.trim();
    dropUnsent(id);
    void (edited === undefined ? ask(question, attached) : edit(edited.id, question, attached));
  };
  const key = (event: KeyboardEvent) => {
    // While an input method composes, Enter chooses a candidate.
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && isAnswering.value) stop();
    else if (event.key === "Escape" && edited !== undefined) changeUnsent(id, { text: "", edited: null });
    else if (event.key === "ArrowUp" && text === "" && !isAnswering.value) {
      const last = messages.findLast(({ role }) => role === "user");
      if (last === undefined) return;
      event.preventDefault();
      changeUnsent(id, { text: last.text, edited: last.id });
    }
  };
  const attach = async (files: Iterable<File>) => {
    const added: Attachment[] = [];
    for (const file of files) {
      try {
        added.push(await readAttachment(file, images));
      } catch (error) {
        say(error instanceof Error ? error.message : String(error), true);
      }
    }
    // Reading takes a while: another conversation may be open by then, and other files attached to this one.
    const all = [...unsentIn(id).attached, ...added];
    if (all.length > MAX_ATTACHMENTS) say(`${MAX_ATTACHMENTS} files at most go with a question`, true);
    changeUnsent(id, { attached: all.slice(0, MAX_ATTACHMENTS) });
  };
  const paste = (event: ClipboardEvent) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    void attach(files);
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => (event.preventDefault(), send())}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => (event.preventDefault(), void attach(event.dataTransfer?.files ?? []))}
    >
      {edited !== undefined && <p class="hint">Editing your last question. Escape cancels.</p>}
      {attached.length > 0 && (
        <ul class="attached">
          {attached.map((file, index) => (
            <li key={index}>
              {file.kind === "image" ? <img src={file.content} alt={file.name} /> : <span>{file.name}</span>}
              <span class="hint">{bytes(sentBytes(file))}</span>
              <button type="button" class="quiet small" aria-label={`Remove ${file.name}`} onClick={() => changeUnsent(id, { attached: attached.filter((_, at) => at !== index) })}>
                <Icon name="close" />
              </button>
            </li>
          ))}
        </ul>
      )}
      <TokenCount text={text} attached={attached} edited={editedId} />
      <div class="composer-row">
        <button type="button" class="quiet" aria-label={images ? "Attach pictures or text files" : "Attach text files"} onClick={() => picker.current?.click()}>
          <Icon name="attach" />
        </button>
        <input ref={picker} type="file" multiple hidden tabIndex={-1} onChange={(event) => (void attach([...(event.currentTarget.files ?? [])]), (event.currentTarget.value = ""))} />
        <div class="grow" data-text={text}>
          <textarea ref={field} id="question" rows={1} aria-label="Your question" placeholder="Ask something" value={text} onInput={(event) => changeUnsent(id, { text: event.currentTarget.value })} onKeyDown={key} onPaste={paste} />
        </div>
        {isAnswering.value ? (
          <button type="button" class="primary round" aria-label="Stop" onClick={() => stop()}>
            <Icon name="stop" />
          </button>
        ) : (
          <button type="submit" class="primary round" aria-label="Send" disabled={!ready}>
            <Icon name="send" />
          </button>
        )}
      </div>
    </form>
  );
}
