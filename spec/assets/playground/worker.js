// Runs Python in the browser: loads the validator once, then judges documents, and searches plans for them.
import { loadPyodide } from "./pyodide.mjs";

const fetched = async (name) => {
  const answer = await fetch(new URL(name, import.meta.url));
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer;
};

const unpacked = async (name, type) => {
  const packed = await fetched(`${name}.packed`);
  return new Response(packed.body.pipeThrough(new DecompressionStream("gzip")), { headers: { "Content-Type": type } });
};

// Pyodide fetches its machine code and its library by itself; it gets what was packed.
const PACKED = { "pyodide.asm.wasm": "application/wasm", "python_stdlib.zip": "application/zip" };
const asIs = self.fetch.bind(self);
self.fetch = (what, options) => {
  const name = new URL(what.url ?? what, import.meta.url).pathname.split("/").pop();
  return name in PACKED ? unpacked(name, PACKED[name]) : asIs(what, options);
};

const pyodideModule = async () => {
  const script = await (await unpacked("pyodide.asm.mjs", "text/javascript")).blob();
  return (await import(URL.createObjectURL(script))).default;
};

const loaded = (async () => {
  const manifest = await (await fetched("manifest.json")).json();
  const python = await loadPyodide({
    indexURL: new URL("./", import.meta.url).href,
    createPyodideModule: await pyodideModule(),
  });
  const place = python.runPython("import site; site.getsitepackages()[0]");
  for (const [name, format] of Object.entries(manifest.archives)) {
    python.unpackArchive(await (await fetched(name)).arrayBuffer(), format, { extractDir: place });
  }
  python.runPython("import importlib; importlib.invalidate_caches()");
  return { judge: python.pyimport("playground").judge, propose: python.pyimport("proposing").propose };
})();

loaded.then(
  () => postMessage({ kind: "ready" }),
  (error) => postMessage({ kind: "failed", message: String(error) }),
);

onmessage = async ({ data }) => {
  try {
    const { judge, propose } = await loaded;
    if (data.kind === "plan") {
      const progress = (done, total) => postMessage({ kind: "searching", done, total });
      postMessage({ kind: "planned", result: JSON.parse(propose(JSON.stringify(data.asked), progress)) });
    } else {
      postMessage({ kind: "judged", number: data.number, result: JSON.parse(judge(JSON.stringify(data.files))) });
    }
  } catch (error) {
    postMessage({ kind: "failed", number: data.number, message: String(error) });
  }
};
