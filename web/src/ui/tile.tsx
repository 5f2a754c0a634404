// A figure with its name and a remark, in a list of class `tiles`.
export function Tile({ name, value, more }: { name: string; value: string; more: string }) {
  return (
    <div class="tile">
      <dt>{name}</dt>
      <dd>
        <span class="figure">{value}</span>
        <span class="hint">{more}</span>
      </dd>
    </div>
  );
}
