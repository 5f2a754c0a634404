// Import of chats from files of this server and of other pages, and the export of all.
import { useRef, useState } from "preact/hooks";
import { messageOf } from "../api/http";
import { isProxy } from "../state/fleet";
import { download } from "../state/export";
import { exportAll, importAll } from "../state/transfers";
import { say } from "../ui/notice";

const ABOUT = "From jan-serve, llama.cpp's page, Open WebUI or ChatGPT (conversations.json)";

export function ChatTransfers() {
  const [busy, setBusy] = useState(false);
  const picker = useRef<HTMLInputElement>(null);
  const doing = async (work: () => Promise<void>) => {
    setBusy(true);
    try {
      await work();
    } catch (error) {
      say(messageOf(error), true);
    } finally {
      setBusy(false);
    }
  };
  const add = (file: File) =>
    doing(async () => {
      const { added, present, refused } = await importAll(await file.text());
      const [first] = refused;
      const rest = [present > 0 ? `, ${present} were here already` : "", first ? `; ${refused.length} cannot be read: “${first.title}”, ${first.reason}` : ""];
      say(`${added} ${added === 1 ? "chat is" : "chats are"} imported${rest.join("")}`, refused.length > 0);
    });
  return (
    <div class="transfers">
      <input ref={picker} type="file" accept=".json,application/json" hidden tabIndex={-1} aria-label="File of chats" onChange={(event) => (event.currentTarget.files?.[0] && void add(event.currentTarget.files[0]), (event.currentTarget.value = ""))} />
      {!isProxy.value && (
        <button type="button" class="quiet small" title={ABOUT} disabled={busy} onClick={() => picker.current?.click()}>
          Import chats
        </button>
      )}
      <button type="button" class="quiet small" disabled={busy} onClick={() => void doing(async () => download("jan-serve-chats.json", await exportAll(), "application/json"))}>
        Export all
      </button>
    </div>
  );
}
