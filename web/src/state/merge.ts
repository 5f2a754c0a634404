// One conversation of two that were changed at the same time: what both say stays, side by side as versions.
import type { ChatSettings, Message } from "./conversation";
import { alternatives, numberOf } from "./versions";

/** All messages of both. Where they differ, what `mine` shows is shown, and the other is another version of it. */
export function mergedMessages(mine: Message[], theirs: Message[]): Message[] {
  if (mine.length === 0 || theirs.length === 0) return mine.length === 0 ? theirs : mine;
  const lines = alternatives(mine, 0);
  const shown = lines.length - 1;
  for (const line of alternatives(theirs, 0)) {
    const at = lines.findIndex((known) => isSame(known[0]!, line[0]!));
    const known = lines[at];
    if (known !== undefined) lines[at] = [joined(known[0]!, line[0]!), ...mergedMessages(known.slice(1), line.slice(1))];
    else lines.push(renumbered(line, lines));
  }
  const [head, ...rest] = lines[shown]!;
  const others = lines.filter((_, at) => at !== shown);
  return [others.length > 0 ? { ...head!, versions: others } : head!, ...rest];
}

/** Each setting as it was changed since `base`; those that both changed as `mine` has them. */
export function mergedSettings(base: ChatSettings | undefined, mine: ChatSettings, theirs: ChatSettings): ChatSettings {
  const same = (name: keyof ChatSettings) => base !== undefined && JSON.stringify(mine[name]) === JSON.stringify(base[name]);
  const unchanged = (Object.keys(theirs) as (keyof ChatSettings)[]).filter(same);
  return { ...mine, ...Object.fromEntries(unchanged.map((name) => [name, theirs[name]])) };
}

/** An edited question keeps its id. An answer has one id while it grows. */
function isSame(one: Message, other: Message): boolean {
  return one.id === other.id && (one.role !== "user" || one.text === other.text);
}

/** Of one answer, the one that was written further. */
function joined(mine: Message, theirs: Message): Message {
  const isWaiting = mine.response !== undefined;
  if (isWaiting !== (theirs.response !== undefined)) return isWaiting ? numberedAs(mine, theirs) : mine;
  const longer = theirs.text.length > mine.text.length || (theirs.finish !== undefined && mine.finish === undefined);
  return longer ? numberedAs(mine, theirs) : mine;
}

function numberedAs({ version }: Message, other: Message): Message {
  return version === undefined ? other : { ...other, version };
}

/** With a number that none of the lines has. */
function renumbered(line: Message[], lines: Message[][]): Message[] {
  const numbers = lines.map(numberOf);
  if (!numbers.includes(numberOf(line))) return line;
  return [{ ...line[0]!, version: Math.max(...numbers) + 1 }, ...line.slice(1)];
}
