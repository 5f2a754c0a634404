// The server's state, and the settings that point other programs at it.
import { useRef } from "preact/hooks";
import { readMetrics } from "../api/metrics";
import { readHealth, type Health } from "../api/server";
import { apiKey, forgetKey } from "../state/key";
import { bytes, duration, percent, rate } from "../ui/format";
import { say } from "../ui/notice";
import { usePolled } from "../ui/polled";
import { Tile } from "../ui/tile";
import { Chart } from "./chart";
import { EditorSettings } from "./editor_settings";
import { counted, type Reading } from "./reading";
import { Requests } from "./requests";
import { SelfCheck } from "./self_check";
import { Totals } from "./totals";

const EVERY_MS = 2_000;
const KEPT = 90;

export function ServerView() {
  const { value, problem } = useReadings();
  const { health, readings } = value ?? { health: null, readings: [] };
  const now = readings.at(-1);
  const rates = readings.slice(1).map((reading, at) => speed(readings[at]!, reading));
  return (
    <div class="panel">
      <h1>Server</h1>
      {problem !== null && <p class="problem">{problem}</p>}
      {health && now && (
        <>
          <dl class="tiles">
            <Tile name="State" value={health.state === "busy" && now.requests === 0 ? "ready" : health.state} more={`jan-serve ${health.version}, up ${duration(health.uptime_s)}`} />
            <Tile name="Requests now" value={String(now.requests)} more={now.requests === 0 && now.running > 0 ? `${now.running} lines of batches run` : `${now.running} generating, ${now.waiting} waiting`} />
            <Tile name="Tokens per second" value={rate(rates.at(-1) ?? 0)} more={`${now.generated.toLocaleString("en")} generated`} />
            <Tile name="Memory of models" value={bytes(now.memory)} more={`${now.loaded} loaded`} />
            <Tile name="Cache hit rate" value={percent(now.cached, now.prompt)} more={`${now.cached.toLocaleString("en")} of ${now.prompt.toLocaleString("en")} prompt tokens`} />
          </dl>
          {rates.some((each) => each > 0) && <Chart title="Tokens per second" values={rates} slots={KEPT} />}
          <Requests />
          <Totals />
          {health.selfcheck && <SelfCheck last={health.selfcheck} />}
        </>
      )}
      <EditorSettings />
      <p class="hint">
        This page is <a href="assets/licenses.txt">made with</a> Preact, marked, DOMPurify, highlight.js and idb. The API is described in{" "}
        <a href="openapi.json">openapi.json</a>.
      </p>
      {apiKey.value && (
        <p>
          <button type="button" onClick={() => (forgetKey(), say("The key is forgotten"))}>
            Forget the key
          </button>
        </p>
      )}
    </div>
  );
}

/** Tokens per second between two readings. The counter of an unloaded worker disappears. */
function speed(before: Reading, after: Reading): number {
  const seconds = (after.at - before.at) / 1000;
  return seconds > 0 ? Math.max(0, after.generated - before.generated) / seconds : 0;
}

interface State {
  health: Health;
  readings: Reading[];
}

function useReadings() {
  const readings = useRef<Reading[]>([]);
  const read = async (signal: AbortSignal): Promise<State> => {
    const [health, samples] = await Promise.all([readHealth(signal), readMetrics(signal)]);
    readings.current = [...readings.current, counted(samples, performance.now())].slice(-KEPT - 1);
    return { health, readings: readings.current };
  };
  return usePolled(read, () => EVERY_MS);
}
