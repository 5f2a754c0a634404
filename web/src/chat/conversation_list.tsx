// The conversations of this browser.
import { useState } from "preact/hooks";
import { conversations, deleteConversation, open, openConversation, renameConversation, storageProblem } from "../state/conversations";
import type { Conversation } from "../state/conversation";
import { goTo, view } from "../state/view";
import { useFocus } from "../ui/focus";
import { Icon } from "../ui/icons";

/** Fewer chats are seen at a glance. */
const SEARCHED_FROM = 3;

export function ConversationList({ onOpen }: { onOpen: () => void }) {
  const [renamed, setRenamed] = useState("");
  const [sought, setSought] = useState("");
  const found = sought.trim() ? conversations.value.filter((each) => mentions(each, sought.trim().toLowerCase())) : conversations.value;
  const choose = (id: string) => {
    openConversation(id);
    goTo("chat");
    onOpen();
  };
  return (
    <section class="conversations" aria-label="Conversations">
      {storageProblem.value && <p class="problem">Chats are not kept: {storageProblem.value}</p>}
      {conversations.value.length > SEARCHED_FROM && (
        <input type="search" class="search" aria-label="Search chats" placeholder="Search chats" value={sought} onInput={(event) => setSought(event.currentTarget.value)} />
      )}
      {found.length === 0 && sought && <p class="hint">No chat has this text.</p>}
      <ul>
        {found.map(({ id, title }) => (
          <li key={id} class={view.value === "chat" && open.value.id === id ? "current" : ""}>
            {renamed === id ? (
              <TitleField title={title} onDone={(text) => (renameConversation(id, text), setRenamed(""))} />
            ) : (
              <>
                <button type="button" class="open-chat" aria-current={open.value.id === id} onClick={() => choose(id)}>
                  {title}
                </button>
                <span class="chat-tools">
                  <button type="button" class="quiet small" aria-label={`Rename ${title}`} onClick={() => setRenamed(id)}>
                    <Icon name="edit" />
                  </button>
                  <button type="button" class="quiet small" aria-label={`Delete ${title}`} onClick={() => void deleteConversation(id)}>
                    <Icon name="trash" />
                  </button>
                </span>
              </>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function mentions({ title, messages }: Conversation, text: string): boolean {
  return title.toLowerCase().includes(text) || messages.some((message) => message.text.toLowerCase().includes(text));
}

function TitleField({ title, onDone }: { title: string; onDone: (text: string) => void }) {
  const field = useFocus<HTMLInputElement>();
  const key = (event: KeyboardEvent) => {
    if (event.key === "Enter") onDone((event.currentTarget as HTMLInputElement).value);
    if (event.key === "Escape") onDone(title);
  };
  return (
    <input
      aria-label="Title"
      defaultValue={title}
      maxLength={200}
      ref={field}
      onKeyDown={key}
      onBlur={(event) => onDone(event.currentTarget.value)}
    />
  );
}
