// The servers behind this proxy: how each one is, what it has, and why it gets no requests.
import { readFleet, type Fleet, type FleetNode } from "../api/nodes";
import { rate } from "../ui/format";
import { usePolled } from "../ui/polled";
import { Tile } from "../ui/tile";

const EVERY_MS = 2_000;

export function NodesView() {
  const { value: fleet, problem } = usePolled(readFleet, () => EVERY_MS);
  return (
    <div class="panel">
      <h1>Nodes</h1>
      {problem !== null && <p class="problem">{problem}</p>}
      {fleet && (
        <>
          <dl class="tiles">
            <Tile name="Nodes" value={String(fleet.nodes.length)} more={`${fleet.nodes.filter((node) => node.routable).length} get requests`} />
            <Tile name="Requests now" value={String(sum(fleet, (node) => node.open_requests))} more={`${sum(fleet, (node) => node.requests).toLocaleString("en")} sent`} />
            <Tile name="Cache hit rate" value={share(fleet.hit_rate)} more={`chosen by ${fleet.strategy}, ${fleet.serving}`} />
          </dl>
          {fleet.nodes.length === 0 ? (
            <p class="hint">
              No server has joined. On another machine: <code>jan-serve serve --host 0.0.0.0 --proxy-url {location.origin}</code>
            </p>
          ) : (
            <ul class="cards">
              {fleet.nodes.map((node) => (
                <Node key={node.url} node={node} />
              ))}
            </ul>
          )}
        </>
      )}
    </div>
  );
}

function Node({ node }: { node: FleetNode }) {
  const speed = node.prefill_tokens_per_s === null ? "" : `, ${rate(node.prefill_tokens_per_s)} prompt tokens per second`;
  const others = node.other_requests > 0 ? ` and ${node.other_requests} of others` : "";
  return (
    <li class="card">
      <h2>{node.name}</h2>
      <p class={node.routable ? "hint" : "problem"}>{node.routable ? `${node.state}, ${node.role}` : node.reason}</p>
      <p>{node.models.join(", ") || "no models"}</p>
      <p class="hint">
        {node.open_requests} requests now{others}, {node.requests.toLocaleString("en")} sent, {node.failures.toLocaleString("en")} failed
      </p>
      <p class="hint">
        Cache hit rate {share(node.hit_rate)}
        {speed}
      </p>
    </li>
  );
}

function sum(fleet: Fleet, count: (node: FleetNode) => number): number {
  return fleet.nodes.reduce((total, node) => total + count(node), 0);
}

function share(hits: number | null): string {
  return hits === null ? "–" : `${Math.round(100 * hits)} %`;
}
