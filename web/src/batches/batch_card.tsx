// One batch: its state, its bar, and, opened, what went wrong in it.
import { useEffect, useState } from "preact/hooks";
import { cancelBatch, readFile, type Batch } from "../api/batches";
import { messageOf, wasAborted } from "../api/http";
import { download } from "../state/export";
import { moment } from "../ui/format";
import { say } from "../ui/notice";

const SHOWN = 20;

const STATES: Record<string, string> = { validating: "checking", in_progress: "running", finalizing: "finishing", completed: "done" };

interface Props {
  batch: Batch;
  open: boolean;
  toggle: () => void;
  onChange: () => void;
}

export function BatchCard({ batch, open, toggle, onChange }: Props) {
  const done = batch.answered + batch.failed;
  const cancel = () => cancelBatch(batch).then(onChange, (error: unknown) => say(messageOf(error), true));
  return (
    <li class="card" aria-label={batch.name}>
      <div class="card-head">
        <h2>{batch.name}</h2>
        <span class={`state ${batch.state}`}>{batch.paused ? "waiting" : (STATES[batch.state] ?? batch.state)}</span>
      </div>
      {batch.total > 0 && <progress aria-label={`Lines of ${batch.name}`} max={batch.total} value={done} />}
      <p class="facts">{facts(batch).join(" · ")}</p>
      {batch.paused && <p class="facts">Waiting: {batch.paused}</p>}
      <div class="actions">
        {batch.results !== null && (
          <button type="button" onClick={() => void save(batch.results!, `${stem(batch.name)}.answers.jsonl`)}>
            Download answers
          </button>
        )}
        {batch.errors !== null && (
          <button type="button" onClick={() => void save(batch.errors!, `${stem(batch.name)}.errors.jsonl`)}>
            Download errors
          </button>
        )}
        <button type="button" aria-expanded={open} onClick={toggle}>
          {open ? "Close" : "Details"}
        </button>
        {!batch.ended && (
          <button type="button" class="danger" disabled={batch.state === "cancelling"} onClick={() => void cancel()}>
            Cancel
          </button>
        )}
      </div>
      {open && <Details batch={batch} />}
    </li>
  );
}

function facts({ total, answered, failed, model, created }: Batch): string[] {
  return [
    ...(total > 0 ? [`${answered.toLocaleString("en")} of ${total.toLocaleString("en")} answered`] : []),
    ...(failed > 0 ? [`${failed.toLocaleString("en")} failed`] : []),
    ...(model ? [model] : []),
    moment(created),
  ];
}

function Details({ batch }: { batch: Batch }) {
  const { lines, problem } = useErrors(batch.errors);
  const faults = batch.faults.map(({ line, message }) => (line === null ? message : `Line ${line}: ${message}`));
  const all = [...faults, ...lines];
  return (
    <div class="details">
      <dl class="pairs">
        <dt>Id</dt>
        <dd>{batch.id}</dd>
        <dt>Route</dt>
        <dd>{batch.endpoint}</dd>
        {!batch.ended && (
          <>
            <dt>Expires</dt>
            <dd>{moment(batch.expires)}</dd>
          </>
        )}
        <dt>Not answered</dt>
        <dd>{(batch.total - batch.answered - batch.failed).toLocaleString("en")}</dd>
      </dl>
      {problem !== null && <p class="problem">{problem}</p>}
      {all.length > 0 && (
        <ul class="problem" aria-label={`Errors of ${batch.name}`}>
          {all.slice(0, SHOWN).map((text, index) => (
            <li key={index}>{text}</li>
          ))}
          {all.length > SHOWN && <li>And {(all.length - SHOWN).toLocaleString("en")} more</li>}
        </ul>
      )}
      {batch.ended && all.length === 0 && problem === null && <p class="hint">No line failed.</p>}
    </div>
  );
}

/** The lines of an error file, in words. */
function useErrors(path: string | null): { lines: string[]; problem: string | null } {
  const [found, setFound] = useState<{ lines: string[]; problem: string | null }>({ lines: [], problem: null });
  useEffect(() => {
    if (path === null) return undefined;
    const controller = new AbortController();
    readFile(path, controller.signal)
      .then((text) => setFound({ lines: text.split("\n").filter(Boolean).map(inWords), problem: null }))
      .catch((error: unknown) => {
        if (!wasAborted(error)) setFound({ lines: [], problem: messageOf(error) });
      });
    return () => controller.abort();
  }, [path]);
  return found;
}

interface ErrorLine {
  custom_id: string;
  error: { message: string } | null;
  response: { status_code: number; body: { error?: { message?: string } } } | null;
}

function inWords(line: string): string {
  const { custom_id, error, response } = JSON.parse(line) as ErrorLine;
  return `${custom_id}: ${error?.message ?? response?.body?.error?.message ?? `HTTP ${response?.status_code}`}`;
}

async function save(path: string, name: string): Promise<void> {
  try {
    download(name, await readFile(path), "application/jsonl");
  } catch (error) {
    say(messageOf(error), true);
  }
}

function stem(name: string): string {
  return name.replace(/\.[a-z]+$/i, "");
}
