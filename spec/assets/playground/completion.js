// The only place that knows what can be written next: the keys and values that the schema of a document allows.
const PARSED = /^( *)((?:- +)*)(?:([\w-]+):(?:\s|$)(.*))?/;
const KINDS = ["ClusterProfile", "TrainingPlan", "CheckpointPolicy"];
const SCHEMAS = new URL("../../schemas/v1/", import.meta.url);
const MOST_STEPS = 64;
const fetched = new Map();

const schemaOf = (kind) => {
  if (!fetched.has(kind)) {
    const name = kind.replace(/(?<=.)([A-Z])/g, "-$1").toLowerCase();
    fetched.set(kind, fetch(new URL(`${name}.schema.json`, SCHEMAS)).then((answer) => (answer.ok ? answer.json() : null)));
  }
  return fetched.get(kind);
};

// The columns of the dashes of a line and of its key, the key, and what comes after its colon.
const parsed = (line) => {
  const [, spaces, dashes, key, value] = PARSED.exec(line);
  const columns = [...dashes.matchAll(/-/g)].map((dash) => spaces.length + dash.index);
  return { columns, column: spaces.length + dashes.length, key, value };
};

// Where a text ends within `{...}` and `[...]` of one line: the frames that are open, the key, and the begun word.
const flow = (text) => {
  const frames = [];
  let key = null;
  let word = "";
  let quote = "";
  for (const [place, letter] of [...text].entries()) {
    if (quote) {
      if (letter === quote) quote = "";
      word += letter;
    } else if (letter === '"' || letter === "'") {
      quote = letter;
      word += letter;
    } else if (letter === "{" || letter === "[") {
      if (key) frames.push(key);
      frames.push(letter);
      [key, word] = [null, ""];
    } else if (letter === "}" || letter === "]") {
      while (frames.length && !"{[".includes(frames.at(-1))) frames.pop();
      frames.pop();
      if (frames.length && !"{[".includes(frames.at(-1))) frames.pop();
      [key, word] = [null, ""];
    } else if (letter === "," && frames.length) {
      [key, word] = [null, ""];
    } else if (letter === ":" && /^(\s|$)/.test(text.slice(place + 1))) {
      [key, word] = [word.trim(), ""];
    } else if (letter === "#" && /(^|\s)$/.test(word)) {
      return null;
    } else {
      word += letter;
    }
  }
  return { path: frames.filter((frame) => frame !== "{").map((frame) => (frame === "[" ? "[]" : frame)), key, word: word.trimStart() };
};

// The keys that lead from the top of a document to the mapping that its last line is in; null where that is unclear.
const blockPath = (lines, last) => {
  const path = [];
  let { column } = last;
  let atDash = false;
  const takeDashes = (columns) => {
    for (const dash of [...columns].reverse()) {
      path.unshift("[]");
      [column, atDash] = [dash, true];
    }
  };
  takeDashes(last.columns);
  for (let number = lines.length - 1; number >= 0 && (column > 0 || atDash); number -= 1) {
    if (!/\S/.test(lines[number]) || /^\s*#/.test(lines[number])) continue;
    const upper = parsed(lines[number]);
    if (!upper.key) continue;
    const sibling = upper.column === column && !atDash;
    const parent = upper.column < column || (upper.column === column && atDash && !upper.columns.length);
    if (parent) {
      if (upper.value.replace(/#.*/, "").trim()) return null;
      path.unshift(upper.key);
      [column, atDash] = [upper.column, false];
    }
    if (sibling || parent) takeDashes(upper.columns);
  }
  return path;
};

// Where the end of a text is: the path to a mapping, the key whose value is begun, and the begun word.
export const placeAt = (text) => {
  const lines = text.split("\n");
  const line = lines.pop();
  const last = parsed(line);
  const within = flow(line.slice(last.column));
  const path = within && blockPath(lines, last);
  return path && { path: [...path, ...within.path], key: within.key, word: within.word };
};

const resolved = (schema, node) => {
  for (let step = 0; node?.$ref && step < MOST_STEPS; step += 1) node = schema.$defs?.[node.$ref.split("/").pop()];
  return node;
};

// The part of a schema that a path leads to, undefined where the schema leaves it open.
const partAt = (schema, path) =>
  path.reduce((node, key) => {
    const found = resolved(schema, node);
    return key === "[]" ? found?.items : found?.properties?.[key] ?? (found?.additionalProperties || undefined);
  }, schema);

const keyOption = (schema, required) => ([label, node]) => {
  const found = { ...resolved(schema, node), ...node };
  const unit = found["x-unit"] ? ` in ${found["x-unit"]}` : "";
  const kind = found.enum ? "one of some words" : found.type ?? "";
  return {
    label,
    apply: `${label}: `,
    type: "property",
    detail: `${kind}${unit}${required.includes(label) ? ", required" : ""}`,
    info: found.description,
    boost: required.includes(label) ? 1 : 0,
  };
};

const valuesOf = (schema, part) => {
  const node = resolved(schema, part) ?? {};
  const values = node.enum ?? (node.type === "boolean" ? [true, false] : node.examples ?? []);
  return values.map((value) => ({ label: String(value), type: "constant", info: node.description }));
};

// What can be written at the end of a text, and how long the begun word is; null where nothing is known.
export const optionsAt = async (text, kind) => {
  const place = placeAt(text);
  if (!place) return null;
  const { path, key, word } = place;
  if (!path.length && key === "kind") return { word, options: KINDS.map((label) => ({ label, type: "constant" })) };
  const schema = KINDS.includes(kind) ? await schemaOf(kind) : null;
  if (!schema) return path.length || key ? null : { word, options: ["apiVersion", "kind"].map((label) => ({ label, apply: `${label}: ` })) };
  if (key) return { word, options: valuesOf(schema, partAt(schema, [...path, key])) };
  if (path.at(-1) === "[]") {
    const item = resolved(schema, partAt(schema, path));
    if (item && !item.properties) return { word, options: valuesOf(schema, item) };
  }
  const mapping = resolved(schema, partAt(schema, path));
  return { word, options: Object.entries(mapping?.properties ?? {}).map(keyOption(schema, mapping?.required ?? [])) };
};
