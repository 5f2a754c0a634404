import assert from "node:assert/strict";
import test from "node:test";
import { parseMetrics, sum } from "../src/api/prometheus";
import { fieldsOf, fits } from "../src/playground/constraint";
import { counted } from "../src/server/reading";
import { bytes, duration, parameters, percent } from "../src/ui/format";

const PAGE = `# HELP jan_serve_engine_running Sequences in the batch.
# TYPE jan_serve_engine_running gauge
jan_serve_engine_running{model="a"} 2.0
jan_serve_engine_running{model="q\\"u{o}te\\\\n"} 1.0
jan_serve_open_requests 3.0
jan_serve_prompt_tokens_total 1.5e+03
jan_serve_request_duration_seconds_bucket{le="+Inf",route="/v1"} 4.0
`;

test("metrics are read with their labels", () => {
  const samples = parseMetrics(PAGE);
  assert.equal(samples.length, 5);
  assert.deepEqual(samples[1]!.labels, { model: 'q"u{o}te\\n' });
  assert.deepEqual(samples[4]!.labels, { le: "+Inf", route: "/v1" });
  assert.equal(sum(samples, "jan_serve_engine_running"), 3);
  const reading = counted(samples, 0);
  assert.deepEqual([reading.requests, reading.running, reading.prompt, reading.cached], [3, 3, 1500, 0]);
  assert.equal(counted(parseMetrics("jan_serve_open_requests 2.0\njan_serve_engine_running 0.0\n"), 0).requests, 0);
});

test("numbers for people", () => {
  assert.deepEqual([0, 999, 1000, 99_499, 1_500_000, 999_900_000, 4.68e9].map(bytes), [
    "0 B", "999 B", "1.0 KB", "99.5 KB", "1.5 MB", "1.0 GB", "4.7 GB",
  ]);
  assert.deepEqual([0.2, 59, 61, 3700, 90_000, Infinity].map(duration), ["1 s", "59 s", "1 min", "1 h 1 min", "1 d 1 h", ""]);
  assert.deepEqual([3_345_216, 596e6, 999.9e6, 7.62e9, 9.99e9, 70.6e9].map(parameters), ["3.3 M", "596 M", "1.0 B", "7.6 B", "10 B", "71 B"]);
  assert.deepEqual([percent(1, 3), percent(0, 0)], ["33 %", "–"]);
});

test("constraints as fields of a request", () => {
  assert.deepEqual(fieldsOf("gbnf", "root ::= [a]"), { grammar: "root ::= [a]" });
  assert.deepEqual(fieldsOf("regex", "a+"), { response_format: { type: "regex", value: "a+" } });
  assert.throws(() => fieldsOf("schema", "{"), SyntaxError);
});

test("results are checked without the server", () => {
  assert.equal(fits("schema", "{}", "{}")?.good, true);
  assert.equal(fits("schema", "{}", "{")?.good, false);
  assert.equal(fits("regex", "a|bc", "bc")?.good, true);
  assert.equal(fits("regex", "a|bc", "abc")?.good, false);
  assert.equal(fits("gbnf", "", ""), null);
});
