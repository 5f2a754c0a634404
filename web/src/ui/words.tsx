// A sentence of the server, whose names of settings and commands stand between backticks.
export function Words({ text }: { text: string }) {
  return <>{text.split("`").map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : part))}</>;
}
