// Prometheus' text format, as far as the server panel needs it.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"/g;

export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (found === null) continue;
    const labels: Record<string, string> = {};
    for (const [, name, value] of (found[2] ?? "").matchAll(LABEL)) labels[name!] = unescape(value!);
    samples.push({ name: found[1]!, labels, value: Number(found[3]) });
  }
  return samples;
}

function unescape(value: string): string {
  return value.replace(/\\(.)/g, (_, char: string) => (char === "n" ? "\n" : char));
}

export function sum(samples: Sample[], name: string): number {
  return samples.reduce((total, sample) => (sample.name === name ? total + sample.value : total), 0);
}
