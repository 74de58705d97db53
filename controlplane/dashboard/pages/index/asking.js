"use strict";
// How a task is asked for: a command to paste, from what the API says of the task. Pure functions.

const MOST_NUMBERS = 128; // of a row that is written out
const A_THREE = [
  0, 0, 7, 15, 13, 1, 0, 0, 0, 8, 13, 6, 15, 4, 0, 0, 0, 2, 1, 13, 13, 0, 0, 0, 0, 0, 2, 15, 11, 1,
  0, 0, 0, 0, 0, 1, 12, 12, 1, 0, 0, 0, 0, 0, 1, 10, 8, 0, 0, 0, 8, 4, 5, 14, 9, 0, 0, 0, 7, 13, 13,
  9, 0, 0,
];

const numbersOf = spec => spec.shape.reduce((product, size) => product * size, 1);
const zeros = ([first, ...rest]) =>
  first === undefined ? 0 : Array.from({ length: first }, () => zeros(rest));

// The inputs of a task with a size for each axis: where rows differ in length, that of its shortest
// one.
function sized({ inputs, lengths }) {
  const shortest = Math.min(...Object.keys(lengths?.buckets ?? {}).map(Number), Infinity);
  const length = Number.isFinite(shortest) ? shortest : 1;
  return inputs.map(spec => ({
    ...spec,
    shape: spec.shape.map(size => (size < 0 ? length : size)),
  }));
}

// Rows of the task's inputs: of the example task a handwritten digit, of one of texts a text, else
// zeros.
function exampleInputs({ name, inputs, text }) {
  if (text) return [text.pairs ? ["a text", "another one"] : "a text"];
  if (name === "digits" && inputs.length === 1 && numbersOf(inputs[0]) === A_THREE.length)
    return [A_THREE];
  const rows = inputs.map(spec => [spec.name, [zeros(spec.shape)]]);
  return rows.length === 1 ? rows[0][1] : Object.fromEntries(rows);
}

// The task's own deadline, and a floor somewhat below its best variant, which of several lengths
// may be that of another.
function exampleSlo({ slo, best_accuracy: best, lengths }) {
  const floor = best == null || lengths ? 0 : Math.max(0, Math.floor(100 * best) - 2) / 100;
  return { latency_ms: slo.latency_ms, ...(floor ? { accuracy: floor } : {}) };
}

// A line for the shell; where a row has too many numbers to be written out, lines of Python.
function askingCommand(given, gateway, asksForToken) {
  const task = { ...given, inputs: sized(given) };
  const slo = exampleSlo(task);
  if (task.text || task.inputs.reduce((sum, spec) => sum + numbersOf(spec), 0) <= MOST_NUMBERS) {
    const token = asksForToken ? ' -H "Authorization: Bearer $MODELLESS_API_TOKEN"' : "";
    const body = JSON.stringify({ task: task.name, slo, inputs: exampleInputs(task) });
    return `curl -s${token} ${gateway}v1/query -d '${body.replaceAll("'", "'\\''")}'`;
  }
  const array = spec => `np.zeros((${[1, ...spec.shape].join(", ")}), "${spec.dtype}")`;
  const inputs =
    task.inputs.length === 1
      ? array(task.inputs[0])
      : `{${task.inputs.map(spec => JSON.stringify(spec.name) + ": " + array(spec)).join(", ")}}`;
  const needs = Object.entries(slo)
    .map(([name, value]) => `, ${name}=${value}`)
    .join("");
  return `import modelless, numpy as np\n\nwith modelless.Client("${gateway.replace(/\/$/, "")}") as client:\n    print(client.query("${task.name}", ${inputs}${needs}))`;
}
