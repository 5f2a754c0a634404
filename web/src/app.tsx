// The frame: navigation, the view named in the address, the key dialog and the notices.
import { effect, untracked } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { BatchesView } from "./batches/batches_view";
import { ChatView } from "./chat/chat_view";
import { ConversationList } from "./chat/conversation_list";
import { ModelsView } from "./models/models_view";
import { NodesView } from "./nodes/nodes_view";
import { PlaygroundView } from "./playground/playground_view";
import { ServerView } from "./server/server_view";
import { loadConversations, startConversation } from "./state/conversations";
import { detectProxy, views } from "./state/fleet";
import { keyEpoch } from "./state/key";
import { refreshModels, watchModels } from "./state/models";
import { deletion, undo } from "./state/undo";
import { goTo, view, type View } from "./state/view";
import { Icon, type IconName } from "./ui/icons";
import { KeyDialog } from "./ui/key_dialog";
import { notice } from "./ui/notice";
import { ShortcutsDialog } from "./ui/shortcuts_dialog";
import { nextTheme, theme } from "./ui/theme";

const SHOWN: Record<View, { title: string; icon: IconName; component: () => preact.JSX.Element }> = {
  chat: { title: "Chat", icon: "chat", component: ChatView },
  models: { title: "Models", icon: "models", component: ModelsView },
  playground: { title: "Playground", icon: "playground", component: PlaygroundView },
  batches: { title: "Batches", icon: "batches", component: BatchesView },
  server: { title: "Server", icon: "server", component: ServerView },
  nodes: { title: "Nodes", icon: "server", component: NodesView },
};

export function App() {
  const [menuOpen, setMenuOpen] = useState(false);
  const [helpOpen, setHelpOpen] = useState(false);

  useEffect(() => {
    void detectProxy().then(loadConversations);
    return watchModels();
  }, []);
  useEffect(
    () =>
      effect(() => {
        if (keyEpoch.value === 0) return;
        void refreshModels();
        void untracked(loadConversations);
      }),
    [],
  );
  useEffect(() => {
    const press = (event: KeyboardEvent) => onKey(event, () => setHelpOpen(true), () => setMenuOpen(false));
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  useEffect(() => setMenuOpen(false), [view.value]);

  const { title, component: Shown } = SHOWN[view.value];
  useEffect(() => {
    document.title = `${title} · jan-serve`;
  }, [title]);

  return (
    <div class={`frame${menuOpen ? " menu-open" : ""}`}>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header class="bar">
        <button type="button" class="quiet" aria-label="Menu" aria-expanded={menuOpen} onClick={() => setMenuOpen(!menuOpen)}>
          <Icon name="menu" />
        </button>
        <span class="bar-title">{title}</span>
        <button type="button" class="quiet" aria-label="New chat" onClick={newChat}>
          <Icon name="plus" />
        </button>
      </header>
      <nav class="side" aria-label="Views and conversations">
        <div class="brand">jan-serve</div>
        <button type="button" class="new-chat" onClick={newChat}>
          <Icon name="plus" /> New chat
        </button>
        <ul class="views">
          {views.value.map((name) => (
            <li key={name}>
              <a href={`#${name}`} aria-current={view.value === name ? "page" : undefined}>
                <Icon name={SHOWN[name].icon} /> {SHOWN[name].title}
              </a>
            </li>
          ))}
        </ul>
        <ConversationList onOpen={() => setMenuOpen(false)} />
        <div class="side-foot">
          <button type="button" class="quiet" aria-label={`Colours: ${theme.value}. Change`} title={`Colours: ${theme.value}`} onClick={nextTheme}>
            <Icon name={theme.value} />
          </button>
          <button type="button" class="quiet" aria-label="Keyboard shortcuts" title="Keyboard shortcuts" onClick={() => setHelpOpen(true)}>
            ?
          </button>
        </div>
      </nav>
      <div class="shade" onClick={() => setMenuOpen(false)} />
      <main id="main" tabIndex={-1}>
        <Shown />
      </main>
      <div class="notices" role="status" aria-live="polite">
        {deletion.value && (
          <div class="notice">
            {deletion.value.text}
            <button type="button" onClick={undo}>
              Undo
            </button>
          </div>
        )}
        {notice.value && <div class={`notice${notice.value.bad ? " bad" : ""}`}>{notice.value.text}</div>}
      </div>
      <KeyDialog />
      {helpOpen && <ShortcutsDialog onClose={() => setHelpOpen(false)} />}
    </div>
  );
}

function newChat(): void {
  startConversation();
  goTo("chat");
  document.getElementById("question")?.focus();
}

function skip(event: MouseEvent): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function onKey(event: KeyboardEvent, help: () => void, close: () => void): void {
  if (event.key === "Escape") close();
  if (event.ctrlKey || event.metaKey) return;
  const typing = event.target instanceof Element && event.target.matches("input, textarea, select");
  if (event.altKey && event.code === "KeyN") newChat();
  else if (event.altKey && /^Digit[1-5]$/.test(event.code)) {
    const name = views.value[Number(event.code.at(-1)) - 1];
    if (name !== undefined) goTo(name);
  } else if (!typing && !event.altKey && event.key === "?") help();
  else if (!typing && !event.altKey && event.key === "/") document.getElementById("question")?.focus();
  else return;
  event.preventDefault();
}
