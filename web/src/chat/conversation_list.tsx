// The conversations of this server, or of this browser: pinned ones, folders, and the others.
import { useEffect, useRef, useState } from "preact/hooks";
import { listChats } from "../api/chats";
import type { ChatFacts, ChatHead } from "../api/chats";
import { messageOf } from "../api/http";
import { conversations, storageProblem } from "../state/chat_list";
import { arrange, deleteConversation, open, openConversation } from "../state/conversations";
import type { Conversation } from "../state/conversation";
import { isShared, listOlder, older, take } from "../state/sync";
import { goTo, view } from "../state/view";
import { useFocus } from "../ui/focus";
import { Icon } from "../ui/icons";
import { say } from "../ui/notice";
import { ChatTransfers } from "./chat_transfers";

/** Fewer chats are seen at a glance. */
const SEARCHED_FROM = 3;
const PAUSE_MS = 150;
const FOUND = 50;

type Line = Pick<Conversation, "id" | "title" | "folder" | "pinned"> & { excerpt?: string };

export function ConversationList({ onOpen }: { onOpen: () => void }) {
  const [sought, setSought] = useState("");
  const all = conversations.value;
  const found = useFound(sought.trim());
  const folders = [...new Set(all.map(({ folder }) => folder ?? ""))].filter(Boolean).sort();
  const rest = (found ?? all).filter(({ pinned, folder }) => found !== null || (!pinned && !folder));
  const lines = (chosen: Line[]) => (
    <ul>
      {chosen.map((line) => (
        <ChatLine key={line.id} line={line} folders={folders} onOpen={onOpen} />
      ))}
    </ul>
  );
  return (
    <section class="conversations" aria-label="Conversations">
      {storageProblem.value && <p class="problem">Chats are not kept: {storageProblem.value}</p>}
      {all.length > SEARCHED_FROM && (
        <input type="search" class="search" aria-label="Search chats" placeholder="Search chats" value={sought} onInput={(event) => setSought(event.currentTarget.value)} />
      )}
      {found?.length === 0 && <p class="hint">No chat has this text.</p>}
      {found === null && lines(all.filter(({ pinned }) => pinned))}
      {found === null &&
        folders.map((name) => (
          <details key={name} open={open.value.folder === name}>
            <summary>{name}</summary>
            {lines(all.filter(({ pinned, folder }) => !pinned && folder === name))}
          </details>
        ))}
      {lines(rest)}
      {found === null && older.value !== null && (
        <button type="button" class="quiet" onClick={() => void listOlder().catch((error: unknown) => say(messageOf(error), true))}>
          Older chats
        </button>
      )}
      <ChatTransfers />
    </section>
  );
}

/** The chats with these words: the server's search goes over all of them. null: nothing is sought. */
function useFound(sought: string): Line[] | null {
  const [heads, setHeads] = useState<ChatHead[]>([]);
  useEffect(() => {
    if (!isShared.value || sought === "") return;
    let isCurrent = true;
    const search = () =>
      void listChats({ q: sought, limit: FOUND }).then(
        ({ data }) => isCurrent && setHeads(data),
        (error: unknown) => say(messageOf(error), true),
      );
    const timer = window.setTimeout(search, PAUSE_MS);
    return () => {
      isCurrent = false;
      window.clearTimeout(timer);
    };
  }, [sought]);
  if (sought === "") return null;
  return isShared.value ? heads : conversations.value.filter((each) => mentions(each, sought.toLowerCase()));
}

function mentions({ title, messages }: Conversation, text: string): boolean {
  return title.toLowerCase().includes(text) || messages.some((message) => message.text.toLowerCase().includes(text));
}

function ChatLine({ line, folders, onOpen }: { line: Line; folders: string[]; onOpen: () => void }) {
  const [isEdited, setEdited] = useState(false);
  const { id, title, pinned, excerpt } = line;
  const list = () => isShared.value && !conversations.value.some((known) => known.id === id) && take([line as ChatHead], new Map());
  const choose = () => {
    list();
    openConversation(id);
    goTo("chat");
    onOpen();
  };
  if (isEdited) return <ChatForm line={line} folders={folders} onDone={(facts) => (list(), arrange(id, facts), setEdited(false))} />;
  return (
    <li class={view.value === "chat" && open.value.id === id ? "current" : ""}>
      <button type="button" class="open-chat" aria-current={open.value.id === id} onClick={choose}>
        {title}
        {excerpt && <small class="hint">{excerpt}</small>}
      </button>
      <span class="chat-tools">
        <button type="button" class="quiet small" aria-label={`${pinned ? "Unpin" : "Pin"} ${title}`} aria-pressed={pinned === true} onClick={() => (list(), arrange(id, { pinned: !pinned }))}>
          <Icon name="pin" />
        </button>
        <button type="button" class="quiet small" aria-label={`Rename ${title}`} onClick={() => setEdited(true)}>
          <Icon name="edit" />
        </button>
        <button type="button" class="quiet small" aria-label={`Delete ${title}`} onClick={() => (list(), void deleteConversation(id))}>
          <Icon name="trash" />
        </button>
      </span>
    </li>
  );
}

/** Title and folder. Leaving it, or Enter, takes them; Escape does not. */
function ChatForm({ line, folders, onDone }: { line: Line; folders: string[]; onDone: (facts: ChatFacts) => void }) {
  const [title, setTitle] = useState(line.title);
  const [folder, setFolder] = useState(line.folder ?? "");
  const field = useFocus<HTMLInputElement>();
  const isOver = useRef(false); // its removal takes the focus, too
  const end = (facts: ChatFacts) => {
    if (!isOver.current) onDone(facts);
    isOver.current = true;
  };
  const done = () => end({ title: title.trim() || line.title, folder: folder.trim() });
  const key = (event: KeyboardEvent) => {
    if (event.key === "Enter") done();
    if (event.key === "Escape") end({});
  };
  const left = (event: FocusEvent) => {
    const next = event.relatedTarget;
    if (!(next instanceof Node && (event.currentTarget as HTMLElement).contains(next))) done();
  };
  return (
    <li class="chat-form" onKeyDown={key} onFocusOut={left}>
      <input aria-label="Title" value={title} maxLength={200} ref={field} onInput={(event) => setTitle(event.currentTarget.value)} />
      <input aria-label="Folder" placeholder="Folder" value={folder} maxLength={100} list="chat-folders" onInput={(event) => setFolder(event.currentTarget.value)} />
      <datalist id="chat-folders">
        {folders.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
    </li>
  );
}
