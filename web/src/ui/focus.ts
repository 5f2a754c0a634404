// Focuses a new element: `autofocus` works only while a document loads.
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function useFocus<T extends HTMLElement>(): RefObject<T | null> {
  const target = useRef<T>(null);
  useEffect(() => target.current?.focus(), []);
  return target;
}
