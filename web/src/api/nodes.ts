// The servers behind a proxy; an ordinary server has no such route.
import { getJson } from "./http";

/** A server behind the proxy. hit_rate: share of prompt tokens that it had cached. reason: why it gets no requests. */
export interface FleetNode {
  url: string;
  name: string;
  role: "hybrid" | "prefill" | "decode";
  state: string;
  routable: boolean;
  reason: string | null;
  models: string[];
  open_requests: number;
  other_requests: number;
  requests: number;
  failures: number;
  hit_rate: number | null;
  prefill_tokens_per_s: number | null;
  mean_latency_s: number | null;
}

export interface Fleet {
  strategy: string;
  serving: string;
  hit_rate: number | null;
  nodes: FleetNode[];
}

export function readFleet(signal?: AbortSignal): Promise<Fleet> {
  return getJson<Fleet>("extras/nodes", signal);
}
