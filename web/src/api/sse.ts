// Reads server-sent events (WHATWG HTML, section 9.2) from a response, however it is split into chunks.

export interface ServerEvent {
  event: string;
  data: string;
  /** With which the stream can be taken up behind this event. */
  id?: string;
}

/** The events of a stream. Skips comments and unused fields. Ends with the body. */
export async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(value);
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

export class EventParser {
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id: string | undefined;

  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    this.rest += text;
    // A CR at the very end may be the first half of a CRLF.
    const ready = this.rest.endsWith("\r") ? this.rest.slice(0, -1) : this.rest;
    const lines = ready.split(/\r\n|\n|\r/);
    this.rest = (lines.pop() ?? "") + this.rest.slice(ready.length);
    for (const line of lines) {
      if (line !== "") this.field(line);
      else if (this.data.length > 0) events.push(this.take());
      else this.event = "";
    }
    return events;
  }

  private field(line: string): void {
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.data.push(value);
    else if (name === "event") this.event = value;
    else if (name === "id") this.id = value;
  }

  private take(): ServerEvent {
    const taken: ServerEvent = { event: this.event || "message", data: this.data.join("\n") };
    if (this.id !== undefined) taken.id = this.id;
    this.event = "";
    this.data = [];
    this.id = undefined;
    return taken;
  }
}
