// Tools of MCP servers: only the server's owner gets them (docs/terminal.md).
import { getJson, postJson } from "./http";

export interface McpTool {
  /** In requests. */
  name: string;
  tool: string;
  description: string;
  parameters: unknown;
}

export interface McpServer {
  name: string;
  /** Why it is not connected, as the end of a sentence that begins with its name. */
  error: string | null;
  tools: McpTool[];
  left_out: { tool: string; reason: string }[];
}

export interface McpResult {
  text: string;
  /** data: URLs. */
  pictures: string[];
  failed: boolean;
}

/** Starts the servers that do not run, which may take a minute. */
export function readMcpServers(): Promise<{ servers: McpServer[]; error: string | null }> {
  return getJson("extras/mcp");
}

/** Cancelled with the signal, also at the MCP server. */
export function callTool(name: string, text: string, signal: AbortSignal): Promise<McpResult> {
  return postJson("extras/mcp/call", { name, arguments: text }, signal);
}
