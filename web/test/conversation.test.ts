import assert from "node:assert/strict";
import test from "node:test";
import { chatRequest, newConversation, newMessage, titleOf, toolsOf, withEdit, withNews } from "../src/state/conversation";
import type { Conversation, Message } from "../src/state/conversation";
import { numbersOf, replacing, withVersion } from "../src/state/versions";

function conversation(messages: Message[], settings: Partial<Conversation["settings"]> = {}): Conversation {
  const made = newConversation();
  return { ...made, messages, settings: { ...made.settings, ...settings } };
}

test("news are added up", () => {
  let message = newMessage("assistant", "");
  for (const news of [
    { reasoning: "hm" },
    { reasoning: "m" },
    { text: "a" },
    { text: "b", calls: [{ index: 1, id: "2", function: { name: "g", arguments: "" } }] },
    { calls: [{ index: 0, id: "1", function: { name: "f", arguments: '{"x"' } }] },
    { calls: [{ index: 0, function: { arguments: ": 1}" } }] },
    { finish: "tool_calls" },
  ]) {
    message = withNews(message, news);
  }
  assert.deepEqual([message.reasoning, message.text, message.finish], ["hmm", "ab", "tool_calls"]);
  assert.deepEqual(message.calls, [
    { id: "1", name: "f", arguments: '{"x": 1}' },
    { id: "2", name: "g", arguments: "" },
  ]);
});

test("a request has what was set, and nothing else", () => {
  assert.deepEqual(chatRequest(conversation([newMessage("user", "hi")]), "m"), {
    model: "m",
    messages: [{ role: "user", content: "hi" }],
  });
  const set = { system: "Be brief.", temperature: 0, maxTokens: 5, effort: "low" as const, tools: "[{}]" };
  assert.deepEqual(chatRequest(conversation([newMessage("user", "hi")], set), "m"), {
    model: "m",
    messages: [
      { role: "system", content: "Be brief." },
      { role: "user", content: "hi" },
    ],
    temperature: 0,
    max_tokens: 5,
    reasoning_effort: "low",
    tools: [{}],
  });
});

test("calls go back with their results and thoughts; other thoughts and empty answers do not", () => {
  const call = { id: "1", name: "f", arguments: "{}" };
  const request = chatRequest(
    conversation([
      newMessage("user", "a"),
      { ...newMessage("assistant", "b"), reasoning: "dropped" },
      { ...newMessage("assistant", ""), error: "broken off" },
      { ...newMessage("assistant", ""), reasoning: "kept", calls: [call] },
      { ...newMessage("tool", "42"), callId: "1" },
    ]),
    "m",
  );
  assert.deepEqual(request.messages, [
    { role: "user", content: "a" },
    { role: "assistant", content: "b" },
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
      reasoning_content: "kept",
    },
    { role: "tool", content: "42", tool_call_id: "1" },
  ]);
});

test("attached text stands in the question, pictures beside it", () => {
  const attachments = [
    { kind: "text" as const, name: "a.txt", content: "one" },
    { kind: "image" as const, name: "b.png", content: "data:image/png;base64,AA==" },
  ];
  const request = chatRequest(conversation([{ ...newMessage("user", "what?"), attachments }]), "m");
  assert.deepEqual(request.messages[0]!.content, [
    { type: "text", text: "a.txt:\n\none\n\nwhat?" },
    { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
  ]);
});

test("of more pictures than a request may have the newest ones go", () => {
  const image = (name: string, chars: number) => ({ kind: "image" as const, name, content: "x".repeat(chars) });
  const sent = (sizes: number[]) => {
    const messages = sizes.map((chars, index) => ({ ...newMessage("user", "what?"), attachments: [image(`${index}.png`, chars)] }));
    return chatRequest(conversation(messages), "m").messages.map(({ content }) => (typeof content === "string" ? content : content?.length));
  };
  assert.deepEqual(sent(Array(66).fill(10)), ["[0.png]\n\nwhat?", "[1.png]\n\nwhat?", ...Array(64).fill(2)]);
  assert.deepEqual(sent([12_000_000, 12_000_000, 12_000_000]), ["[0.png]\n\nwhat?", 2, 2]);
});

test("an edit replaces a question, what follows it, and nothing where there is no such question", () => {
  const file = (name: string) => ({ kind: "text" as const, name, content: "x" });
  const first = { ...newMessage("user", "one"), attachments: [file("a")] };
  const second = newMessage("user", "two");
  const messages = [first, newMessage("assistant", "ok"), second, newMessage("assistant", "ok")];
  const shown = (edited: Message[]) => edited.map(({ role, text, attachments }) => [role, text, attachments?.map(({ name }) => name)]);
  assert.deepEqual(shown(withEdit(messages, first.id, "new", [file("b")])), [["user", "new", ["a", "b"]]]);
  assert.deepEqual(shown(withEdit(messages, second.id, "new")).at(-1), ["user", "new", undefined]);
  assert.deepEqual(shown(withEdit(messages, "of another chat", "new")).slice(-2), [
    ["assistant", "ok", undefined],
    ["user", "new", undefined],
  ]);
  assert.equal(withEdit([], "of another chat", "new")[0]!.role, "user");
});

test("what is replaced stays as another version, with all that follows it", () => {
  const [question, answer, next, last] = ["q1", "a1", "q2", "a2"].map((text, at) => newMessage(at % 2 ? "assistant" : "user", text)) as [Message, Message, Message, Message];
  const texts = (messages: Message[]) => messages.map(({ text }) => text).join(" ");
  const first = [question, answer, next, last];
  const again: Message[] = [question, { ...newMessage("assistant", "b1"), ...replacing(first, 1) }];
  assert.deepEqual(numbersOf(again[1]!), [0, 1]);
  const edited = withEdit(again, question.id, "q1 new");
  assert.deepEqual(numbersOf(edited[0]!), [0, 1]);
  assert.equal(texts(withVersion(edited, edited[0]!.id, 0)), "q1 b1");
  const back = withVersion(again, again[1]!.id, 0);
  assert.equal(texts(back), "q1 a1 q2 a2");
  assert.deepEqual(numbersOf(back[1]!), [0, 1]);
  const third: Message[] = [question, { ...newMessage("assistant", "c1"), ...replacing(back, 1) }];
  assert.deepEqual(numbersOf(third[1]!), [0, 1, 2]);
  for (const [version, text] of [[0, "q1 a1 q2 a2"], [1, "q1 b1"], [2, "q1 c1"]] as const) {
    assert.equal(texts(withVersion(third, third[1]!.id, version)), text);
  }
  assert.equal(withVersion(third, "of another chat", 0), third);
  assert.deepEqual(replacing([], 0), {});
});

test("samplers are sent as they are set", () => {
  const request = chatRequest(conversation([newMessage("user", "hi")], { sampling: { top_k: 5, seed: 1 } }), "m");
  assert.deepEqual([request.top_k, request.seed, request.top_p], [5, 1, undefined]);
});

test("tools have to be a list", () => {
  const { settings } = newConversation();
  assert.deepEqual(toolsOf({ ...settings, tools: " " }), []);
  assert.throws(() => toolsOf({ ...settings, tools: "{}" }), /list/);
  assert.throws(() => toolsOf({ ...settings, tools: "[" }), /not JSON/);
});

test("titles are one short line", () => {
  assert.equal(titleOf("  Hello\nthere"), "Hello");
  assert.equal(titleOf("x".repeat(100)).length, 48);
  assert.equal(titleOf(" \n"), "New chat");
});
