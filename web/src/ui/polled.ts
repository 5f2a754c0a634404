// What a view reads again and again while it is shown; nothing is read for a hidden tab.
import { useEffect, useRef, useState } from "preact/hooks";
import { messageOf } from "../api/http";

export interface Polled<T> {
  /** The last one that was read; null before the first. */
  value: T | null;
  /** Why the last reading failed. */
  problem: string | null;
  /** Reads at once. */
  refresh: () => void;
}

/** everyMs: the pause after a reading, which may depend on it. */
export function usePolled<T>(read: (signal: AbortSignal) => Promise<T>, everyMs: (value: T | null) => number): Polled<T> {
  const [state, setState] = useState<{ value: T | null; problem: string | null }>({ value: null, problem: null });
  const refresh = useRef(() => {});
  useEffect(() => {
    let controller = new AbortController();
    let timer = 0;
    let last: T | null = null;
    const look = async () => {
      // A reading that is under way may be older than what the view waits for.
      controller.abort();
      window.clearTimeout(timer);
      const { signal } = (controller = new AbortController());
      if (document.visibilityState === "visible") {
        try {
          last = await read(signal);
          if (!signal.aborted) setState({ value: last, problem: null });
        } catch (error) {
          if (!signal.aborted) setState({ value: last, problem: messageOf(error) });
        }
      }
      if (!signal.aborted) timer = window.setTimeout(look, everyMs(last));
    };
    refresh.current = () => void look();
    document.addEventListener("visibilitychange", refresh.current);
    void look();
    return () => {
      document.removeEventListener("visibilitychange", refresh.current);
      controller.abort();
      window.clearTimeout(timer);
    };
  }, []);
  return { ...state, refresh: () => refresh.current() };
}
