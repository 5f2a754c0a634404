// Formats numbers for display.

const UNITS = ["B", "KB", "MB", "GB", "TB"];

/** Decimal units, as disks and hubs are labelled. */
export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit === 0 || value >= 99.5 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

/** A parameter count as in the names of models: 3.3 M, 596 M, 7.6 B, 70 B. */
export function parameters(count: number): string {
  const [value, unit] = count >= 999.5e6 ? [count / 1e9, "B"] : [count / 1e6, "M"];
  return `${value.toFixed(value < 9.95 ? 1 : 0)} ${unit}`;
}

export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`;
}

/** A time in milliseconds since 1970. */
export function moment(at: number): string {
  return new Date(at).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
}

export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–";
}

export function rate(perSecond: number): string {
  return perSecond >= 99.5 ? String(Math.round(perSecond)) : perSecond.toFixed(1);
}
