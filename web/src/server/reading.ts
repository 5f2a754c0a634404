// The figures of the server panel, read from the metrics.
import { sum, type Sample } from "../api/prometheus";

export interface Reading {
  /** Milliseconds of the browser's clock. */
  at: number;
  /** Open requests; 0 if no model is busy, because only the page's own calls are open then. */
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
  const running = total("engine_running");
  const waiting = total("engine_waiting") + total("model_waiting");
  return {
    at,
    requests: running + waiting > 0 ? total("open_requests") : 0,
    running,
    waiting,
    loaded: total("model_ready"),
    generated: total("engine_generated_tokens_total"),
    memory: total("engine_resident_bytes"),
    prompt: total("prompt_tokens_total"),
    cached: total("cached_tokens_total"),
  };
}
