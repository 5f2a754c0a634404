// Tool calls and the form for their results: this page runs no tools.
import { giveResults, isAnswering } from "../state/conversations";
import type { ToolCall } from "../state/conversation";

export function CallView({ call }: { call: ToolCall }) {
  return (
    <div class="call">
      <div class="label">
        Calls <code>{call.name}</code>
      </div>
      <pre class="plain">{indented(call.arguments)}</pre>
    </div>
  );
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still being written
  }
}

export function CallResults({ calls }: { calls: ToolCall[] }) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget as HTMLFormElement);
    void giveResults(new Map(calls.map(({ id }, index) => [id, String(fields.get(`result-${index}`) ?? "")])));
  };
  return (
    <form class="results" onSubmit={submit}>
      {calls.map((call, index) => (
        <label key={index}>
          Result of {call.name}
          <textarea name={`result-${index}`} rows={2} class="code" required />
        </label>
      ))}
      <div class="actions">
        <button type="submit" class="primary" disabled={isAnswering.value}>
          Give {calls.length > 1 ? "results" : "result"}
        </button>
      </div>
    </form>
  );
}
