// Files of requests that are answered while nobody else needs the model: sent, watched, cancelled, downloaded.
import { useRef, useState } from "preact/hooks";
import { listBatches, sendBatch } from "../api/batches";
import { messageOf } from "../api/http";
import { currentModel } from "../state/models";
import { download } from "../state/export";
import { say } from "../ui/notice";
import { usePolled } from "../ui/polled";
import { BatchCard } from "./batch_card";

const RUNNING_MS = 1_500;
const IDLE_MS = 10_000;

export function BatchesView() {
  const { value: batches, problem, refresh } = usePolled(listBatches, (found) => (found?.some(({ ended }) => !ended) ? RUNNING_MS : IDLE_MS));
  const [open, setOpen] = useState<string | null>(null);
  return (
    <div class="panel">
      <h1>Batches</h1>
      <p class="lead">Send a file of requests that can wait. Each is answered once, while nobody else needs the model, even over restarts.</p>
      <SendForm onSent={refresh} />
      {problem !== null && <p class="problem">{problem}</p>}
      {batches?.length === 0 && <p class="hint">There are no batches yet.</p>}
      <ul class="cards" aria-label="Batches">
        {batches?.map((batch) => (
          <BatchCard key={batch.id} batch={batch} open={open === batch.id} toggle={() => setOpen(open === batch.id ? null : batch.id)} onChange={refresh} />
        ))}
      </ul>
    </div>
  );
}

function SendForm({ onSent }: { onSent: () => void }) {
  const picker = useRef<HTMLInputElement>(null);
  const [sending, setSending] = useState("");
  const [problem, setProblem] = useState<string | null>(null);
  const send = async (file: File | undefined) => {
    if (file === undefined || sending) return;
    setSending(file.name);
    setProblem(null);
    try {
      await sendBatch(file);
      say(`${file.name} is sent`);
    } catch (error) {
      setProblem(messageOf(error));
    } finally {
      setSending("");
      onSent();
    }
  };
  return (
    <div class="drop" onDragOver={(event) => event.preventDefault()} onDrop={(event) => (event.preventDefault(), void send(event.dataTransfer?.files[0]))}>
      <div class="row">
        <button type="button" class="primary" disabled={sending !== ""} onClick={() => picker.current?.click()}>
          {sending ? `Sending ${sending}…` : "Choose a file"}
        </button>
        <button type="button" onClick={() => download("example.jsonl", example(), "application/jsonl")}>
          Download an example
        </button>
      </div>
      <p class="hint">JSON lines in the form of OpenAI's Batch API, or drop a file here.</p>
      <input ref={picker} type="file" accept=".jsonl,.ndjson,.json,.txt" hidden tabIndex={-1} aria-label="File of requests" onChange={(event) => (void send(event.currentTarget.files?.[0]), (event.currentTarget.value = ""))} />
      {problem !== null && (
        <p class="problem" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

function example(): string {
  const model = currentModel.value?.id ?? "jan-tiny";
  const questions = ["Name a river in Europe.", "What is 7 plus 8?", "Say hello in French."];
  const lines = questions.map((content, index) => ({
    custom_id: `question-${index + 1}`,
    method: "POST",
    url: "/v1/chat/completions",
    body: { model, messages: [{ role: "user", content }], max_tokens: 100 },
  }));
  return lines.map((line) => `${JSON.stringify(line)}\n`).join("");
}
