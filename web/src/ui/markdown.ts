// Markdown to DOM. Model output is not trusted: its HTML is shown as text, the rest is sanitised.
import DOMPurify from "dompurify";
import { Marked, type Tokens } from "marked";
import { highlight } from "./highlight";

const TAGS = [
  "a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "input", "li",
  "ol", "p", "pre", "s", "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
];
const ATTRIBUTES = ["align", "checked", "class", "disabled", "href", "start", "title", "type"];

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  async: false,
  renderer: {
    code({ text, lang }: Tokens.Code): string {
      const language = (lang ?? "").trim().split(/\s/, 1)[0] ?? "";
      return `<pre title="${escape(language)}"><code class="hljs">${highlight(text, language) ?? escape(text)}</code></pre>`;
    },
    html({ text }: Tokens.HTML | Tokens.Tag): string {
      return escape(text);
    },
    // Loading an image would reveal to another server that this answer was read.
    image({ href, text }: Tokens.Image): string {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
  },
});

/** A fragment to show. Runs nothing from the text. */
export function renderMarkdown(text: string): DocumentFragment {
  const html = marked.parse(text) as string;
  const fragment = DOMPurify.sanitize(html, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOW_DATA_ATTR: false,
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    RETURN_DOM_FRAGMENT: true,
  });
  for (const link of fragment.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  // Levels that go on from the chat's own heading, without gaps.
  let level = 1;
  for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    level = Math.min(Number(heading.tagName[1]) + 1, level + 1);
    heading.ariaLevel = String(level);
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.type = "checkbox";
    box.disabled = true;
  }
  for (const block of fragment.querySelectorAll("pre")) block.replaceWith(codeBlock(block));
  for (const table of fragment.querySelectorAll("table")) table.replaceWith(scrolling(table));
  return fragment;
}

function codeBlock(block: HTMLPreElement): HTMLElement {
  const language = block.title;
  block.removeAttribute("title");
  block.tabIndex = 0;
  const box = element("div", "code-block");
  const head = element("div", "code-head");
  const name = element("span", "code-language");
  name.textContent = language || "text";
  const button = element("button", "quiet copy-code");
  button.setAttribute("type", "button");
  button.textContent = "Copy";
  button.setAttribute("aria-label", "Copy code");
  head.append(name, button);
  box.append(head, block.cloneNode(true));
  return box;
}

function scrolling(table: HTMLTableElement): HTMLElement {
  const box = element("div", "table-box");
  box.tabIndex = 0;
  box.append(table.cloneNode(true));
  return box;
}

function element(tag: string, classes: string): HTMLElement {
  const made = document.createElement(tag);
  made.className = classes;
  return made;
}
