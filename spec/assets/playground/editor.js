// The only place for the editor of the playground: a text with colours, marks on its findings, and completion.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "./modules/codemirror-autocomplete.js";
import { defaultKeymap, history, historyKeymap } from "./modules/codemirror-commands.js";
import { yaml } from "./modules/codemirror-lang-yaml.js";
import { bracketMatching, indentOnInput, syntaxHighlighting, syntaxTree } from "./modules/codemirror-language.js";
import { lintGutter, lintKeymap, setDiagnostics } from "./modules/codemirror-lint.js";
import { EditorState } from "./modules/codemirror-state.js";
import { drawSelection, EditorView, keymap, lineNumbers } from "./modules/codemirror-view.js";
import { classHighlighter } from "./modules/lezer-highlight.js";
import { optionsAt } from "./completion.js";

const SEVERITIES = { error: "error", warning: "warning" };

// A flow mapping or sequence that began on an earlier line is not read by the completion.
const inOpenFlow = (state, place, line) => {
  for (let node = syntaxTree(state).resolveInner(place, -1); node; node = node.parent) {
    if (/^Flow/.test(node.name) && node.from < line.from) return true;
  }
  return false;
};

const complete = async (context) => {
  const { state, pos } = context;
  if (inOpenFlow(state, pos, state.doc.lineAt(pos))) return null;
  const kind = /^kind:\s*(\w+)/m.exec(state.doc.toString())?.[1];
  const found = await optionsAt(state.sliceDoc(0, pos), kind);
  if (!found?.options.length || (!found.word && !context.explicit)) return null;
  return { from: pos - found.word.length, options: found.options, validFor: /^[\w.-]*$/ };
};

const offsetOf = (text, line, column) => {
  const found = text.line(Math.min(Math.max(line, 1), text.lines));
  return Math.min(found.from + Math.max(column - 1, 0), found.to);
};

// From the place of a finding to the end of what is written there, without a comment after it.
const spanOf = (text, { line, column }) => {
  const from = offsetOf(text, line, column);
  const rest = text.sliceString(from, text.lineAt(from).to).replace(/\s+#.*$/, "").trimEnd();
  return { from, to: from + rest.length };
};

export const openEditor = (parent, typed) => {
  const extensions = (name) => [
    lineNumbers(),
    history(),
    drawSelection(),
    indentOnInput(),
    bracketMatching(),
    closeBrackets(),
    lintGutter(),
    syntaxHighlighting(classHighlighter),
    keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
    EditorView.contentAttributes.of({ "aria-label": `Text of ${name}` }),
    EditorView.updateListener.of((update) => update.docChanged && typed(update.state.doc.toString())),
    name.endsWith(".jsonl") ? EditorView.lineWrapping : [yaml(), autocompletion({ override: [complete] })],
  ];
  const view = new EditorView({ parent });
  return {
    show: (name, text) => view.setState(EditorState.create({ doc: text, extensions: extensions(name) })),
    mark: (findings) => {
      const marks = findings.map((finding) => ({
        ...spanOf(view.state.doc, finding),
        severity: SEVERITIES[finding.severity] ?? "info",
        message: `${finding.requirement} ${finding.name}: ${finding.message}`,
      }));
      view.dispatch(setDiagnostics(view.state, marks));
    },
    goTo: (finding) => {
      const { from, to } = spanOf(view.state.doc, finding);
      view.dispatch({ selection: { anchor: from, head: to }, effects: EditorView.scrollIntoView(from, { y: "center" }) });
      view.focus();
    },
  };
};
