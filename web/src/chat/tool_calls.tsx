// Tool calls, and what gives them results: an MCP server, or else the user.
import { giveResults, isAnswering, open } from "../state/conversations";
import type { ToolCall } from "../state/conversation";
import { isMcpTool, mcpServers } from "../state/mcp";
import { McpCalls, StartServers } from "./mcp_calls";

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

export function CallResults({ answer, calls }: { answer: string; calls: ToolCall[] }) {
  if (calls.every(({ name }) => isMcpTool(name))) return <McpCalls answer={answer} calls={calls} />;
  return (
    <>
      {open.value.settings.mcp && mcpServers.value === null && <StartServers />}
      <ResultForm calls={calls} />
    </>
  );
}

function ResultForm({ calls }: { calls: ToolCall[] }) {
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
