// The open conversation.
import { useEffect, useRef, useState } from "preact/hooks";
import { isAnswering, open } from "../state/conversations";
import { currentModel, isBase } from "../state/models";
import { ModelChoice } from "../models/model_choice";
import { Icon } from "../ui/icons";
import { ChatSettingsPanel } from "./chat_settings";
import { Composer } from "./composer";
import { MessageView } from "./message_view";

const NEAR_END_PX = 80;

export function ChatView() {
  const [settingsOpen, setSettingsOpen] = useState(false);
  const { id, title, messages } = open.value;
  const last = messages.at(-1);
  const list = useFollowingScroll(id, messages);

  return (
    <div class="chat">
      <div class="chat-head">
        <ModelChoice />
        <button type="button" class="quiet" aria-expanded={settingsOpen} aria-label="Settings of this chat" onClick={() => setSettingsOpen(!settingsOpen)}>
          <Icon name="settings" />
        </button>
      </div>
      {settingsOpen && <ChatSettingsPanel />}
      <div class="messages" ref={list} tabIndex={0} role="log" aria-label="Messages" aria-live="off">
        {messages.length === 0 ? <Welcome /> : <h1 class="off-screen">{title}</h1>}
        {isBase(currentModel.value) && <p class="hint base">This file has no chat template: it is a base model that continues text, not one that chats.</p>}
        {messages.map((message) => (
          <MessageView key={message.id} message={message} isLast={message === last} isWriting={message === last && isAnswering.value} />
        ))}
      </div>
      <div class="off-screen" role="status" aria-live="polite">
        {spoken()}
      </div>
      <Composer />
    </div>
  );
}

function Welcome() {
  const model = currentModel.value;
  return (
    <div class="welcome">
      <h1>What would you like to know?</h1>
      <p>{model ? `${model.id} answers, on this server. Chats stay in this browser.` : "There is no model yet: get one under Models."}</p>
    </div>
  );
}

/** Screen readers read the complete answer, not each token. */
function spoken(): string {
  if (isAnswering.value) return "Answering";
  const last = open.value.messages.at(-1);
  return last?.role === "assistant" ? `Answer: ${last.error ?? last.text}` : "";
}

/** Scrolls to the end while an answer grows, unless the reader has scrolled away. */
function useFollowingScroll(id: string, messages: unknown) {
  const list = useRef<HTMLDivElement>(null);
  const follows = useRef(true);

  useEffect(() => {
    const box = list.current!;
    const scrolled = () => {
      follows.current = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
    };
    const grown = new MutationObserver(() => {
      if (follows.current) box.scrollTop = box.scrollHeight;
    });
    box.addEventListener("scroll", scrolled, { passive: true });
    grown.observe(box, { childList: true, subtree: true, characterData: true });
    return () => {
      box.removeEventListener("scroll", scrolled);
      grown.disconnect();
    };
  }, []);
  useEffect(() => {
    follows.current = true;
    list.current!.scrollTop = list.current!.scrollHeight;
  }, [id, (messages as unknown[]).length]);
  return list;
}
