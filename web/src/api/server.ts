// The server itself.
import { getJson } from "./http";

export interface Health {
  status: string;
  state: string;
  version: string;
  uptime_s: number;
  open_requests: number;
  /** Of a proxy: how many nodes it has. */
  nodes?: number;
  /** The newest run of `jan-serve selfcheck`. Not of a proxy. */
  selfcheck?: SelfCheckResult | null;
}

/** at: seconds since 1970. findings: what is worse than with the version that it was compared with. */
export interface SelfCheckResult {
  version: string;
  compared_with: string | null;
  at: number;
  findings: string[];
}

export function readHealth(signal?: AbortSignal): Promise<Health> {
  return getJson<Health>("health", signal);
}
