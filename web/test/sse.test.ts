import assert from "node:assert/strict";
import test from "node:test";
import { EventParser, readEvents } from "../src/api/sse";

const STREAM = ': ping\n\ndata: {"a": 1}\r\n\r\nevent: more\ndata: one\ndata:two\nid: 7\n\nevent: empty\n\ndata: \r\rdata: é🙂\n\n';
const EVENTS = [
  { event: "message", data: '{"a": 1}' },
  { event: "more", data: "one\ntwo", id: "7" },
  { event: "message", data: "" },
  { event: "message", data: "é🙂" },
];

test("a stream is read the same wherever it is split", () => {
  for (let first = 0; first <= STREAM.length; first++) {
    for (let second = first; second <= STREAM.length; second++) {
      const parser = new EventParser();
      const pieces = [STREAM.slice(0, first), STREAM.slice(first, second), STREAM.slice(second)];
      assert.deepEqual(pieces.flatMap((piece) => parser.push(piece)), EVENTS);
    }
  }
});

test("bytes may be split inside of a character", async () => {
  const bytes = new TextEncoder().encode(STREAM);
  for (let at = 0; at <= bytes.length; at++) {
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(bytes.slice(0, at));
        controller.enqueue(bytes.slice(at));
        controller.close();
      },
    });
    const events = [];
    for await (const event of readEvents(new Response(body))) events.push(event);
    assert.deepEqual(events, EVENTS);
  }
});

test("an event without its end is none", () => {
  assert.deepEqual(new EventParser().push("data: half\n"), []);
});
