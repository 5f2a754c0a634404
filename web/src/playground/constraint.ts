// The kinds of constraints, their request fields, and a check of the result in the browser.

export type Kind = "schema" | "regex" | "gbnf";

export const KINDS: { name: Kind; title: string }[] = [
  { name: "schema", title: "JSON Schema" },
  { name: "regex", title: "Regular expression" },
  { name: "gbnf", title: "GBNF" },
];

const SCHEMA = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 40 },
    age: { type: "integer", minimum: 0, maximum: 120 },
    languages: { type: "array", items: { enum: ["de", "en", "es", "fr"] }, maxItems: 3 },
  },
  required: ["name", "age"],
  additionalProperties: false,
};

export const EXAMPLES: Record<Kind, string> = {
  schema: JSON.stringify(SCHEMA, null, 2),
  regex: "(Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, [0-9]{1,2}:[0-5][0-9]",
  gbnf: 'root ::= answer ", because " reason "."\nanswer ::= "yes" | "no"\nreason ::= [a-z ]{5,60}',
};

/** The fields of a request. Throws SyntaxError where a schema is not JSON. */
export function fieldsOf(kind: Kind, text: string): { grammar: string } | { response_format: unknown } {
  switch (kind) {
    case "gbnf":
      return { grammar: text };
    case "regex":
      return { response_format: { type: "regex", value: text } };
    case "schema":
      return { response_format: { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(text) as unknown } } };
  }
}

export interface Verdict {
  good: boolean;
  words: string;
}

/** Checks a finished text in the browser; null if it cannot be checked. */
export function fits(kind: Kind, text: string, written: string): Verdict | null {
  if (kind === "schema") {
    try {
      JSON.parse(written);
      return { good: true, words: "✓ Valid JSON." };
    } catch {
      return { good: false, words: "✗ Not JSON." };
    }
  }
  if (kind === "regex") {
    try {
      const good = new RegExp(`^(?:${text})$`, "u").test(written);
      return { good, words: good ? "✓ The browser's own expression matches it." : "✗ The browser's own expression does not match it." };
    } catch {
      return null; // an expression that this browser reads differently
    }
  }
  return null;
}
