// The open conversation.
import { useEffect, useRef, useState } from "preact/hooks";
import type { Message } from "../state/conversation";
import { isAnswering, open } from "../state/conversations";
import { currentModel, isBase, onlyBuiltIn } from "../state/models";
import { isShared } from "../state/sync";
import { changeUnsent } from "../state/unsent";
import type { Model } from "../api/models";
import { AdvisedModels } from "../models/advice";
import { FoundModels } from "../models/found_models";
import { ModelChoice } from "../models/model_choice";
import { PullProgress } from "../models/pull_form";
import { Icon } from "../ui/icons";
import { ChatSettingsPanel } from "./chat_settings";
import { Composer } from "./composer";
import { MessageView } from "./message_view";

const NEAR_END_PX = 80;

export function ChatView() {
  const [settingsOpen, setSettingsOpen] = useState(false);
  const { id, title, messages, partial } = open.value;
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
        {partial && messages.length === 0 ? <p class="hint">Loading…</p> : messages.length === 0 ? <Welcome /> : <h1 class="off-screen">{title}</h1>}
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

const EXAMPLES = ["Explain photosynthesis to a child of ten.", "Write a friendly reminder about an unpaid bill.", "What can I cook from rice, eggs and spinach?"];
/** What the built-in model knows. */
const FOR_BUILT_IN = ["What is jan-serve?", "Think step by step: what is 7 plus 8?", "How do I get a larger model?"];

function Welcome() {
  const model = currentModel.value;
  const begin = (text: string) => {
    changeUnsent(open.value.id, { text });
    document.getElementById("question")?.focus();
  };
  return (
    <div class="welcome">
      <h1>What would you like to know?</h1>
      <p>{introduction(model)}</p>
      {model && (
        <div class="examples">
          {(onlyBuiltIn.value ? FOR_BUILT_IN : EXAMPLES).map((text) => (
            <button type="button" key={text} onClick={() => begin(text)}>
              {text}
            </button>
          ))}
        </div>
      )}
      {onlyBuiltIn.value && <FirstModel />}
    </div>
  );
}

function introduction(model: Model | undefined): string {
  if (model === undefined) return "There is no model yet: get one under Models.";
  const answers = onlyBuiltIn.value ? `${model.id} is a tiny built-in model for trying the server: it knows next to nothing.` : `${model.id} answers, on this server.`;
  return `${answers} ${isShared.value ? "The server keeps your chats." : "Chats stay in this browser."}`;
}

/** Offers a real model where there is none. */
function FirstModel() {
  return (
    <section aria-label="A first model">
      <FoundModels />
      <AdvisedModels />
      <PullProgress />
      <p>
        <a href="#models">All models</a>
      </p>
    </section>
  );
}

/** Screen readers read the complete answer, not each token. */
function spoken(): string {
  if (isAnswering.value) return "Answering";
  const last = open.value.messages.at(-1);
  return last?.role === "assistant" ? `Answer: ${last.error ?? last.text}` : "";
}

/** Scrolls to the end while an answer grows, unless the reader has scrolled away. */
function useFollowingScroll(id: string, messages: Message[]) {
  const list = useRef<HTMLDivElement>(null);
  const follows = useRef(messages.length > 0);

  useEffect(() => {
    const box = list.current!;
    const scrolled = () => {
      follows.current = box.querySelector("article") !== null && box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_END_PX;
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
    // The welcome of an empty chat is read from its top.
    follows.current = messages.length > 0;
    list.current!.scrollTop = follows.current ? list.current!.scrollHeight : 0;
  }, [id, messages.length]);
  return list;
}
