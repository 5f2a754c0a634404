// MCP servers whose tools chats may use, and the tools that a chat calls without asking.
import { signal } from "@preact/signals";
import { messageOf } from "../api/http";
import { readMcpServers } from "../api/mcp";
import type { McpServer } from "../api/mcp";

/** null: not asked for yet. */
export const mcpServers = signal<McpServer[] | null>(null);
export const mcpProblem = signal<string | null>(null);
export const isStarting = signal(false);
/** Answers that ended in this tab: what one of an earlier visit calls is not called by itself. */
export const endedHere = new Set<string>();
/** Tools by chat. Not stored: another visit asks again. */
const allowed = signal<ReadonlySet<string>>(new Set());

export async function startMcpServers(): Promise<void> {
  if (isStarting.value) return;
  isStarting.value = true;
  try {
    const { servers, error } = await readMcpServers();
    mcpServers.value = servers;
    mcpProblem.value = error;
  } catch (error) {
    mcpProblem.value = messageOf(error);
  } finally {
    isStarting.value = false;
  }
}

/** The tools as a request has them, once the servers have started. */
export async function mcpFunctions(): Promise<unknown[]> {
  if (mcpServers.value === null) await startMcpServers();
  const tools = (mcpServers.value ?? []).flatMap((server) => server.tools);
  return tools.map(({ name, description, parameters }) => ({ type: "function", function: { name, description, parameters } }));
}

export function isMcpTool(name: string): boolean {
  return (mcpServers.value ?? []).some(({ tools }) => tools.some((tool) => tool.name === name));
}

export function allow(chat: string, tool: string): void {
  allowed.value = new Set(allowed.value).add(`${chat} ${tool}`);
}

export function isAllowed(chat: string, tool: string): boolean {
  return allowed.value.has(`${chat} ${tool}`);
}
