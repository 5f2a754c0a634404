import assert from "node:assert/strict";
import test from "node:test";
import { newConversation, newMessage, withEdit } from "../src/state/conversation";
import type { Message } from "../src/state/conversation";
import { mergedMessages, mergedSettings } from "../src/state/merge";
import { numbersOf, replacing } from "../src/state/versions";

const message = (id: string, more: Partial<Message> = {}): Message => ({ ...newMessage(id.startsWith("q") ? "user" : "assistant", id), id, ...more });
const line = (...ids: string[]) => ids.map((id) => message(id));

/** As `q1 a1{b1@1 q2}`: a1 has another version b1, number 1, which q2 follows. */
function shown(messages: Message[]): string {
  return messages.map(({ text, version, versions }) => text + (version ? `@${version}` : "") + (versions ?? []).map((tail) => `{${shown(tail)}}`).join("")).join(" ");
}

/** The texts of all messages, those of all versions included. */
function texts(messages: Message[]): string[] {
  return messages.flatMap(({ text, versions }) => [text, ...(versions ?? []).flatMap(texts)]).sort();
}

const again = (messages: Message[], at: number, id: string): Message[] => [...messages.slice(0, at), { ...message(id), ...replacing(messages, at) }];

test("what only one page has added is there", () => {
  assert.equal(shown(mergedMessages(line("q1", "a1"), line("q1", "a1", "q2", "a2"))), "q1 a1 q2 a2");
  assert.equal(shown(mergedMessages(line("q1", "a1", "q2"), line("q1", "a1"))), "q1 a1 q2");
  assert.equal(shown(mergedMessages([], line("q1"))), "q1");
  assert.equal(shown(mergedMessages(line("q1"), [])), "q1");
});

test("what both have added is side by side", () => {
  const merged = mergedMessages(line("q1", "a1", "q2", "a2"), line("q1", "a1", "q3", "a3"));
  assert.equal(shown(merged), "q1 a1 q2{q3@1 a3} a2");
  assert.deepEqual(numbersOf(merged[2]!), [0, 1]);
});

test("an answer that one page wrote again and another one went on from", () => {
  const known = line("q1", "a1");
  const merged = mergedMessages(again(known, 1, "b1"), [...known, ...line("q2", "a2")]);
  assert.equal(shown(merged), "q1 b1@1{a1 q2 a2}");
});

test("both pages wrote an answer again, or edited a question", () => {
  const known = line("q1", "a1", "q2", "a2");
  const answers = mergedMessages(again(known, 1, "b1"), again(known, 1, "c1"));
  assert.equal(shown(answers), "q1 b1@1{a1 q2 a2}{c1@2}");
  const questions = mergedMessages(withEdit(known, "q1", "mine"), withEdit(known, "q1", "theirs"));
  assert.equal(shown(questions), "mine@1{q1 a1 q2 a2}{theirs@2}");
});

test("of one answer the page that wrote further is right", () => {
  const half = [message("q1"), message("a1", { text: "It" })];
  const whole = [message("q1"), message("a1", { text: "It is.", finish: "stop" })];
  for (const merged of [mergedMessages(half, whole), mergedMessages(whole, half)]) assert.equal(shown(merged), "q1 It is.");
  const stopped = [message("q1"), message("a1", { text: "", finish: "stopped" })];
  assert.equal(mergedMessages([message("q1"), message("a1", { text: "" })], stopped)[1]!.finish, "stopped");
});

test("a merge with itself, or once more, changes nothing, and no text is lost in any order", () => {
  const known = line("q1", "a1", "q2", "a2");
  const pages = [known, again(known, 1, "b1"), again(again(known, 3, "b2"), 1, "c1"), withEdit(known, "q2", "q2 new"), [...known, ...line("q3")], line("q1"), line("q0", "a0")];
  for (const mine of pages) {
    assert.equal(shown(mergedMessages(mine, mine)), shown(mine));
    for (const theirs of pages) {
      const merged = mergedMessages(mine, theirs);
      assert.deepEqual(texts(merged), [...new Set([...texts(mine), ...texts(theirs)])].sort());
      assert.equal(shown(mergedMessages(merged, theirs)), shown(merged));
      assert.equal(merged[0]!.text, (mine[0] ?? theirs[0])!.text);
    }
  }
});

test("settings that one page changed stay changed", () => {
  const base = newConversation().settings;
  const merged = mergedSettings(base, { ...base, temperature: 1, maxTokens: 5 }, { ...base, system: "Be brief.", maxTokens: 9 });
  assert.deepEqual(merged, { ...base, system: "Be brief.", temperature: 1, maxTokens: 5 });
  assert.equal(mergedSettings(undefined, { ...base, effort: "low" }, base).effort, "low");
});
