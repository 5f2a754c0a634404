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
}

export function readHealth(signal?: AbortSignal): Promise<Health> {
  return getJson<Health>("health", signal);
}
