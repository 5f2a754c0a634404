// The metrics of the server.
import { call } from "./http";
import { parseMetrics, type Sample } from "./prometheus";

export async function readMetrics(signal?: AbortSignal): Promise<Sample[]> {
  const response = await call("metrics", signal ? { signal } : {});
  return parseMetrics(await response.text());
}
