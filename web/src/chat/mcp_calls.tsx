// Calls of the tools of MCP servers: each is asked for, unless the chat allows its tool.
import { useEffect, useRef, useState } from "preact/hooks";
import { callTool } from "../api/mcp";
import type { McpResult } from "../api/mcp";
import { messageOf, wasAborted } from "../api/http";
import { giveResults, open } from "../state/conversations";
import type { Attachment, ToolCall } from "../state/conversation";
import { allow, endedHere, isAllowed, isStarting, mcpProblem, startMcpServers } from "../state/mcp";

type State = "asked" | "running" | McpResult;

const DECLINED: McpResult = { text: "The user did not allow this call.", pictures: [], failed: true };

export function McpCalls({ answer, calls }: { answer: string; calls: ToolCall[] }) {
  const chat = open.value.id;
  const [states, setStates] = useState<State[]>(() => calls.map(() => "asked"));
  // Another chat, another version or a deletion takes the calls away, and ends them.
  const ending = useRef(new AbortController());
  const set = (index: number, state: State) => setStates((known) => known.map((each, at) => (at === index ? state : each)));

  const run = async (index: number) => {
    const { signal } = ending.current;
    set(index, "running");
    try {
      const { name, arguments: text } = calls[index]!;
      set(index, await callTool(name, text, signal));
    } catch (error) {
      set(index, wasAborted(error) ? "asked" : { ...DECLINED, text: messageOf(error) });
    }
  };
  const runAllowed = () => {
    calls.forEach(({ name }, index) => {
      if (states[index] === "asked" && isAllowed(chat, name)) void run(index);
    });
  };
  const always = (name: string) => {
    allow(chat, name);
    runAllowed();
  };
  const stop = () => {
    ending.current.abort();
    ending.current = new AbortController();
  };

  useEffect(() => {
    if (endedHere.has(answer)) runAllowed();
    return () => ending.current.abort();
  }, []);
  useEffect(() => {
    const results = states.filter((state): state is McpResult => typeof state === "object");
    if (results.length < calls.length || ending.current.signal.aborted) return;
    const texts = new Map(calls.map(({ id }, index) => [id, results[index]!.text]));
    const pictures = new Map(calls.map(({ id }, index) => [id, results[index]!.pictures.map(pictureOf)]));
    void giveResults(texts, pictures);
  }, [states]);

  return (
    <div class="results" role="group" aria-label="Calls">
      {calls.map(({ name }, index) => {
        const state = states[index];
        if (typeof state === "object") return <p class="hint">{state.failed ? `${name}: ${state.text}` : `${name} has a result.`}</p>;
        if (state === "running") {
          return (
            <p class="actions">
              <span role="status">Calling {name}…</span>
              <button type="button" onClick={stop}>
                Stop the call
              </button>
            </p>
          );
        }
        return (
          <p class="actions">
            <span>Call {name}?</span>
            <button type="button" class="primary" onClick={() => void run(index)}>
              Allow
            </button>
            <button type="button" onClick={() => always(name)}>
              Always in this chat
            </button>
            <button type="button" onClick={() => set(index, DECLINED)}>
              Refuse
            </button>
          </p>
        );
      })}
    </div>
  );
}

function pictureOf(content: string, index: number): Attachment {
  return { kind: "image", name: `picture ${index + 1}`, content };
}

/** Shown below calls of another visit, whose servers nobody has started in this one. */
export function StartServers() {
  return (
    <p class="actions">
      <button type="button" disabled={isStarting.value} onClick={() => void startMcpServers()}>
        {isStarting.value ? "Starting…" : "Start the MCP servers"}
      </button>
      {mcpProblem.value && <span class="problem">{mcpProblem.value}</span>}
    </p>
  );
}
