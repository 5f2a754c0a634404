// The numbers of the server panel, out of the metrics.
import { sum, type Sample } from "../api/prometheus";

export interface Reading {
  /** Milliseconds of the browser's clock. */
  at: number;
  requests: number;
  running: number;
  waiting: number;
  loaded: number;
  /** Tokens since the workers started. */
  generated: number;
  /** Bytes. */
  memory: number;
  prompt: number;
  cached: number;
}

export function counted(samples: Sample[], at: number): Reading {
  const total = (name: string) => sum(samples, `jan_serve_${name}`);
  return {
    at,
    requests: total("open_requests"),
    running: total("engine_running"),
    waiting: total("engine_waiting") + total("model_waiting"),
    loaded: total("model_ready"),
    generated: total("engine_generated_tokens_total"),
    memory: total("engine_resident_bytes"),
    prompt: total("prompt_tokens_total"),
    cached: total("cached_tokens_total"),
  };
}
