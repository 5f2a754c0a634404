// A small chart of the last minutes.

interface Props {
  title: string;
  values: number[];
  /** How many values the width holds. */
  slots: number;
}

const WIDTH = 600;
const HEIGHT = 120;

export function Chart({ title, values, slots }: Props) {
  const most = Math.max(10, ...values) * 1.1;
  const x = (index: number) => WIDTH - ((values.length - 1 - index) * WIDTH) / (slots - 1);
  const y = (value: number) => HEIGHT - (value / most) * HEIGHT;
  const points = values.map((value, index) => `${x(index).toFixed(1)},${y(value).toFixed(1)}`);
  const last = values.at(-1) ?? 0;
  return (
    <figure class="chart">
      <figcaption>
        {title} <span class="hint">the last {Math.round((slots * 2) / 60)} minutes, {Math.max(...values, 0).toFixed(0)} at most</span>
      </figcaption>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={`${title}: now ${last.toFixed(1)}`}>
        {points.length > 1 && (
          <>
            <path class="area" d={`M${x(0).toFixed(1)},${HEIGHT} L${points.join(" ")} L${WIDTH},${HEIGHT}Z`} />
            <path class="line" d={`M${points.join(" L")}`} />
          </>
        )}
      </svg>
    </figure>
  );
}
